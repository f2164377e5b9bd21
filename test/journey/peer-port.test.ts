import { readdir, readFile, readlink } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { createPartner, eventually, lookup, type Service, startService } from '../support/service.ts'

/** Processes listen for each other only while there is another one. Sockets are those that Linux says a process has. */

let database: TestDatabase
let environment: Record<string, string>
const services: Service[] = []

beforeAll(async () => {
  database = await testDatabase()
  environment = {
    ...{ DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' },
    ...{ METRICS_PORT: '0', LOG_LEVEL: 'info' },
  }
})

afterAll(async () => {
  await Promise.all(services.map((service) => service.end('SIGTERM')))
  await database?.drop()
})

/** `127.0.0.1:4000`, sorted: what a process listens on, beside its hosts for people and partners. */
const peerPortsOf = async ({ child, apiUrl, metricsUrl }: Service): Promise<string[]> => {
  const known = [apiUrl, metricsUrl].map((url) => new URL(url).host)
  return (await listeningOf(child.pid ?? 0)).filter((address) => !known.includes(address))
}

const listening = '0A'
const listeningOf = async (pid: number): Promise<string[]> => {
  const fds = await readdir(`/proc/${pid}/fd`)
  const links = await Promise.all(fds.map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')))
  const inodes = new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []))
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((name) => readFile(`/proc/${pid}/net/${name}`, 'utf8').catch(() => '')),
  )
  return tables
    .flatMap((table) => table.split('\n').slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state, , , , , , inode]) => state === listening && inodes.has(inode ?? ''))
    .map(([, local = '']) => addressOf(local))
    .sort()
}

/** IPv4 as the kernel writes it, the least significant byte first. Anything else as it is there. */
const addressOf = (local: string): string => {
  const [host = '', port = ''] = local.split(':')
  const bytes =
    host.length === 8 ? (host.match(/../g) ?? []).reverse().map((byte) => Number(`0x${byte}`)) : [host]
  return `${bytes.join('.')}:${Number(`0x${port}`)}`
}

const oneOnLoopback = [expect.stringMatching(/^127\.0\.0\.1:\d+$/)]

test('one api process has no port for others; two have one each; the one that is left closes it', async () => {
  const first = await startService({ ...environment, ROLES: 'api' })
  services.push(first)
  const { apiKey } = await createPartner('100', environment)
  await eventually(async () =>
    (await lookup(first.apiUrl, apiKey, '8.8.8.8')).status === 200 ? true : undefined,
  )
  // The command line, which has just sent commands of its own, is no api process.
  expect(await peerPortsOf(first)).toEqual([])

  const second = await startService({ ...environment, ROLES: 'api' })
  services.push(second)
  const both = (): Promise<string[][]> => Promise.all([peerPortsOf(first), peerPortsOf(second)])
  await eventually(async () => ((await both()).every((ports) => ports.length > 0) ? true : undefined))
  expect(await both()).toEqual([oneOnLoopback, oneOnLoopback])

  expect(await second.end('SIGTERM')).toBe(0)
  await eventually(async () => ((await peerPortsOf(first)).length === 0 ? true : undefined), 15_000)
  expect((await lookup(first.apiUrl, apiKey, '8.8.8.8')).status).toBe(200)

  // One that is killed leaves its row: it counts as alive for some seconds more.
  const third = await startService({ ...environment, ROLES: 'api' })
  services.push(third)
  await eventually(async () => ((await peerPortsOf(first)).length > 0 ? true : undefined))
  await third.end('SIGKILL')
  await eventually(async () => ((await peerPortsOf(first)).length === 0 ? true : undefined), 20_000)
})
