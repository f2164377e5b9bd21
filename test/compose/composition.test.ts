/**
 * Runs docker-compose.yml on a real Docker engine, with the commands of the guide. Each test continues from the previous one. A
 * protocol double takes the place of EventStoreDB, so these tests do not test EventStoreDB.
 */
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, type TestContext, test } from 'vitest'
import { takesAtMost } from '../support/takes-at-most.ts'
import { type Calls, oneCall, startCalls } from './calls.ts'
import {
  becomesHealthy,
  charged,
  checkout,
  commandLine,
  compose,
  containers,
  crash,
  entry,
  guide,
  makePartner,
  only,
  type Partner,
  removeAll,
  secrets,
  skipped,
  tellWhy,
  type,
} from './composition.ts'
import { docker } from './docker.ts'

const perSecond = 20
const setUp = ['certificates', 'database-role', 'event-log-user', 'migrate']
const seconds = (fromMs: number): string => `${((performance.now() - fromMs) / 1_000).toFixed(1)} s`
const show = (what: string, figure: unknown): void => console.log(`${what}: ${JSON.stringify(figure)}`)

/** Makes calls while `work` runs, and a few more afterwards. */
const whileCalling = async (
  partner: Partner,
  again: boolean,
  work: (calls: Calls) => Promise<void>,
): Promise<Calls> => {
  const calls = startCalls({ url: entry, apiKey: partner.apiKey, perSecond, again })
  try {
    await answersAgain(calls)
    await work(calls)
    await answersAgain(calls)
  } catch (error) {
    show('the last answers', calls.made.slice(-3))
    throw error
  } finally {
    await calls.stop()
  }
  return calls
}
const answersAgain = async (calls: Calls): Promise<void> => {
  const from = calls.made.length
  await expect
    .poll(() => calls.made.slice(from).filter(({ answers }) => answers.at(-1) === '200').length, {
      timeout: 120_000,
      message: 'calls are answered again',
    })
    .toBeGreaterThan(perSecond)
}

const tellWhenFailed = ({ onTestFailed }: TestContext): void => onTestFailed(tellWhy)

describe.skipIf(skipped)('one node', () => {
  beforeEach(tellWhenFailed)
  let partner: Partner
  /** The number of answered calls, each counted once. */
  let answered = 0

  beforeAll(async () => {
    const began = performance.now()
    await type(await guide.start())
    show('the guide’s first commands', seconds(began))
    partner = await makePartner()
  }, 600_000)

  afterAll(removeAll)

  test("the guide's first commands start everything, healthy, from a checkout that only its owner can read", async () => {
    for (const { service, state, health, exitCode } of await containers())
      expect([service, state, health, exitCode]).toEqual(
        setUp.includes(service) ? [service, 'exited', undefined, 0] : [service, 'running', 'healthy', 0],
      )
    expect(await containers('api')).toHaveLength(2)
    expect(await oneCall({ url: entry, apiKey: partner.apiKey })).toBe('200')
    answered++
    expect(await charged(partner)).toBe(answered)
  })

  test('only the edge is published, and only on this host', async () => {
    const published = (await docker('ps', '--format', '{{.Names}} {{.Ports}}')).split('\n')
    const places = published.flatMap((line) =>
      [...line.matchAll(/(\S+):\d+->/g)].map(([, host]) => [line.split(' ')[0], host]),
    )
    expect(new Set(places.map(String))).toEqual(new Set(['enrichment-ledger-edge-1,127.0.0.1']))
    // In the kernel's table, the state 0A is listening, and 0100007F is 127.0.0.1.
    const listening = [
      ...(await readFile('/proc/net/tcp', 'utf8')).matchAll(/^ *\d+: (\w+):\w+ \w+:\w+ 0A/gm),
    ]
    expect(new Set(listening.map(([, address]) => address))).toEqual(new Set(['0100007F']))
    expect(await readFile('/proc/net/tcp6', 'utf8')).not.toMatch(/ 0A /)
  })

  test('all calls with a key reach one process', async () => {
    const count =
      "fetch('http://127.0.0.1:9464/metrics').then((r) => r.text()).then((text) => console.log(/^enrichment_calls_total.*ip_lookup.*answered.* (\\d+)$/m.exec(text)[1]))"
    const counts = async (): Promise<number[]> =>
      Promise.all(
        (await containers('api')).map(async ({ id }) =>
          Number(await docker('exec', id, 'node', '-e', count)),
        ),
      )
    const before = await counts()
    for (let n = 0; n < 20; n++) expect(await oneCall({ url: entry, apiKey: partner.apiKey })).toBe('200')
    answered += 20
    const after = await counts()
    expect(after.map((all, at) => all - (before[at] ?? 0)).sort()).toEqual([0, 20])
  })

  test('a command ends when its work is done, and services that are already up are soon ready again', async () => {
    const began = performance.now()
    const commands = async (): Promise<void> => {
      await compose('run', '--rm', '-T', '--no-deps', 'migrate', 'org', 'list')
      show('run --rm --no-deps migrate org list', seconds(began))
      await compose('up', '--detach')
      show('org list, and up without a change', seconds(began))
    }
    // In the past each restart took 28 s, because it waited for a DNS look-up.
    await takesAtMost(50_000, commands())
  }, 300_000)

  test('killed programs are restarted; every call is answered in the end, and charged once', async () => {
    const calls = await whileCalling(partner, true, async (under) => {
      for (const services of [
        ['api', 'worker', 'redis', 'dashboard'],
        ['postgres', 'eventstore', 'edge'],
      ]) {
        const from = under.made.length
        await Promise.all(services.map(async (service) => crash(await only(service))))
        for (const service of services) await becomesHealthy(service)
        await answersAgain(under)
        show(
          `failed at first when ${services} were killed, of ${under.made.length - from}`,
          under.lostSince(from),
        )
      }
    })
    expect(calls.made.filter(({ answers }) => answers.at(-1) !== '200')).toEqual([])
    answered += calls.made.length
    expect(await charged(partner)).toBe(answered)
  }, 600_000)

  test("the guide's upgrade loses no call", async () => {
    await writeFile(join(checkout, 'src/release.ts'), 'export const release = 2\n')
    const old = new Set(
      (await containers())
        .filter(({ service }) => ['api', 'dashboard', 'worker'].includes(service))
        .map(({ id }) => id),
    )
    const began = performance.now()
    const calls = await whileCalling(partner, false, async () => {
      await type(await guide.upgrade())
    })
    show('the upgrade', seconds(began))
    show(`lost during the upgrade, of ${calls.made.length}`, calls.lostSince(0))
    answered += calls.made.filter(({ answers }) => answers.at(-1) === '200').length
    expect(calls.lostSince(0)).toEqual({})
    const now = await containers()
    expect(now.filter(({ id }) => old.has(id))).toEqual([])
    expect(now.filter(({ service }) => service === 'api')).toHaveLength(2)
    expect(await compose('exec', '-T', 'api', 'cat', 'src/release.ts')).toContain('release = 2')
    expect(await charged(partner)).toBe(answered)
  }, 600_000)

  test("the guide's backup is made while the service runs", async () => {
    await type(await guide.backUp())
    await becomesHealthy('eventstore')
  }, 600_000)

  test('SIGTERM ends every container with exit code 0', async () => {
    const began = performance.now()
    await compose('stop')
    show('stop', seconds(began))
    expect(
      (await containers())
        .filter(({ exitCode }) => exitCode !== 0)
        .map(({ service, exitCode }) => [service, exitCode]),
    ).toEqual([])
  }, 600_000)

  test('down keeps all data, and leaves no unnamed volume', async () => {
    await compose('down')
    const volumes = (await docker('volume', 'ls', '--quiet')).split('\n')
    expect(volumes.filter((name) => !name.startsWith('enrichment-ledger_'))).toEqual([])
    // Starts only what the command needs.
    const balance = ['credits', 'balance', partner.organization, '--json']
    expect(JSON.parse(await compose('run', '--rm', '-T', 'migrate', ...balance))).toMatchObject({
      balance: String(partner.granted - answered),
    })
  }, 600_000)

  test('the backup, restored onto an empty host with the commands of the guide, has every call', async () => {
    await removeAll()
    expect(await docker('volume', 'ls', '--quiet')).toBe('')
    await type(await guide.restore())
    await becomesHealthy('edge')
    expect(await charged(partner)).toBe(answered)
    expect(await oneCall({ url: entry, apiKey: partner.apiKey })).toBe('200')
    const { ok } = await commandLine('ledger', 'verify')
    expect(String(ok)).toBe('true')
  }, 600_000)

  test('no secret is in a log, in an image, or on a command line', async () => {
    const known = Object.entries(await secrets()).filter(([, value]) => /^[0-9a-f]{64}$/.test(value))
    expect(known).toHaveLength(7)
    const texts = [
      await compose('logs', '--no-color'),
      await docker('history', '--no-trunc', 'enrichment-ledger'),
    ]
    for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name)))
      texts.push(await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''))
    const found = known.filter(([, value]) => texts.some((text) => text.includes(value)))
    expect(found.map(([name]) => name)).toEqual([])
  })
})

describe.skipIf(skipped)('three nodes', () => {
  beforeEach(tellWhenFailed)
  let partner: Partner

  beforeAll(async () => {
    await rm(join(checkout, '.env'), { force: true })
    const [makeSecrets = ''] = (await guide.start()).split('docker compose')
    await type(makeSecrets)
    const given = await secrets()
    const added = (await guide.threeNodes()).replace(/<(\w+)>/g, (_, name: string) => given[name] ?? '')
    await writeFile(join(checkout, '.env'), added, { flag: 'a' })
    await compose('up', '--detach', '--wait')
    partner = await makePartner()
  }, 600_000)

  afterAll(removeAll)

  test('exactly three nodes run', async () => {
    const nodes = (await containers())
      .filter(({ service }) => service.startsWith('eventstore'))
      .map(({ service }) => service)
    expect(nodes.sort()).toEqual(['eventstore1', 'eventstore2', 'eventstore3'])
  })

  test('when the first node is lost for good, the others find a leader that comes back', async () => {
    const calls = await whileCalling(partner, true, async (under) => {
      await compose('stop', '--timeout', '5', 'eventstore1')
      const from = under.made.length
      await crash(await only('eventstore2'))
      await becomesHealthy('eventstore2')
      await answersAgain(under)
      show(
        `failed at first with one node gone and the leader killed, of ${under.made.length - from}`,
        under.lostSince(from),
      )
    })
    expect(calls.made.filter(({ answers }) => answers.at(-1) !== '200')).toEqual([])
    expect(await charged(partner)).toBe(calls.made.length)
  }, 600_000)
})
