/** The process to which each reverse proxy in the deployment guide sends a key's calls, with the guide's exact configuration. */
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freePort } from '../support/free-port.ts'
import { ask } from './ask.ts'
import { accepts, type ServerProcess, startProcess } from './mail/process.ts'

const servers: Server[] = []
const ports: number[] = []
let guide = ''
let directory = ''
let edge: ServerProcess | undefined

beforeAll(async () => {
  guide = await readFile(new URL('../../src/guides/deployment.md', import.meta.url), 'utf8')
  directory = await mkdtemp(join(tmpdir(), 'edges-'))
  for (const name of ['one', 'two']) {
    const server = createServer((_request, response) => response.end(name))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    servers.push(server)
    ports.push((server.address() as AddressInfo).port)
  }
})

afterAll(async () => {
  await edge?.close()
  for (const server of servers) server.close()
  await rm(directory, { recursive: true, force: true })
})

/** The guide's configuration block that begins with `firstLine`, with the test's ports. */
const configuration = (firstLine: string, listenAt: number): string => {
  const [, text = ''] = guide.split(`\`\`\`\n${firstLine}\n`)
  const block = text.split('```', 1)[0] ?? ''
  expect(block).toContain('3010')
  return block
    .replaceAll('3010', String(ports[0]))
    .replaceAll('3011', String(ports[1]))
    .replaceAll('8080', String(listenAt))
    .replace('api.example.com', `http://127.0.0.1:${listenAt}`)
}

const edges = {
  Caddy: async (listenAt: number) => {
    const file = join(directory, 'Caddyfile')
    await writeFile(file, `{\n\tadmin off\n}\n${configuration('# Caddyfile', listenAt)}`)
    return { command: 'caddy', args: ['run', '--adapter', 'caddyfile', '--config', file] }
  },
  nginx: async (listenAt: number) => {
    const file = join(directory, 'nginx.conf')
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    await writeFile(
      file,
      `daemon off;\nmaster_process off;\npid ${directory}/nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n${temporary
        .map((name) => `${name}_temp_path ${directory}/${name};\n`)
        .join('')}${configuration('# nginx, in the http section', listenAt)}}\n`,
    )
    return { command: 'nginx', args: ['-e', 'stderr', '-p', directory, '-c', file] }
  },
  HAProxy: async (listenAt: number) => {
    const file = join(directory, 'haproxy.cfg')
    await writeFile(file, configuration('# haproxy.cfg', listenAt))
    return { command: 'haproxy', args: ['-db', '-f', file] }
  },
} as const

test.each(Object.keys(edges) as (keyof typeof edges)[])(
  '%s sends all calls of a key to one process, and keys to both',
  async (name) => {
    const listenAt = await freePort()
    edge = await startProcess({
      ...(await edges[name](listenAt)),
      ready: () => accepts('127.0.0.1', listenAt),
    })
    const reached = async (key: string): Promise<string> => {
      const { status, text } = await ask(`http://127.0.0.1:${listenAt}/`, '127.0.0.2', {
        headers: { 'x-api-key': key },
      })
      expect(status).toBe(200)
      return text
    }
    const places = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => {
        const calls = Array.from({ length: 10 }, () => reached(`enl_live_${n}`))
        return new Set(await Promise.all(calls))
      }),
    )
    expect(places.every(({ size }) => size === 1)).toBe(true)
    expect(new Set(places.flatMap((place) => [...place]))).toEqual(new Set(['one', 'two']))
    await edge.close()
    edge = undefined
  },
)
