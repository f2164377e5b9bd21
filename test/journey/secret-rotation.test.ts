import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { inventedPeople } from '../../src/capabilities/profile/dataset/invented-people.ts'
import { ringKeyOf } from '../../src/guard/secret-ring.ts'
import { createSecrets } from '../../src/guard/secrets.ts'
import { signedHeaders } from '../../src/webhooks/signature.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  type LookupAnswer,
  lookup,
  type Partner,
  type Service,
  startCli,
  startService,
} from '../support/service.ts'

/** SECRET_KEY is rotated beside live traffic, by real processes that are restarted one after the other. The tests follow each other. */

// With commas, as keys that were made before there was a list of them may have.
const firstKey = 'the first key of this installation, long enough'
const secondKey = 'the second key of this installation as long'
const thirdKey = 'a third key that it comes to later, as long'
const [firstId, secondId, thirdId] = [firstKey, secondKey, thirdKey].map((key) => ringKeyOf(key).id)

type Under = { secret_key: string; under: { use: string; count: number; and_more: boolean }[] }
type Status = { keys: (Under & { state: string })[]; processes: { secret_keys: string[] }[] }
type Rotated = {
  secret_key: string
  former: string | null
  renewed: { use: string; count: number }[]
  left: string[]
  kept: { secret_key: string; under: string[] }[]
}

describe('an installation of several processes', () => {
  const people = [...inventedPeople(6_000)].filter((person) => !('deleted' in person))
  const [early, erased, late] = [people[0]?.lid ?? '', people[1]?.lid ?? '', people[2]?.lid ?? '']

  let database: TestDatabase
  let pool: pg.Pool
  let outside = ''
  let file = ''
  let receiver: Server
  const received: { readonly headers: IncomingHttpHeaders; readonly body: string }[] = []
  let first: Service
  let second: Service
  let partner: Partner
  let unused: Partner
  let token = ''
  let webhook: { webhook_id: string; secret: string }
  let answered: LookupAnswer

  const withKeys = (secretKey: string, ...old: string[]): Record<string, string> => ({
    DATABASE_URL: database.url,
    SECRET_KEY: secretKey,
    EGRESS_ALLOW: '127.0.0.1',
    ROLES: 'api,projector,jobs',
    ...(old.length === 0 ? {} : { SECRET_KEYS_OLD: old.map((key) => key.replaceAll(',', ',,')).join(',') }),
  })
  const oldSide = () => withKeys(firstKey)
  const newSide = () => withKeys(secondKey, firstKey)

  const retrieve = async (service: Service, id: string) => {
    const response = await fetch(`${service.apiUrl}/v1/profnet/profile`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': partner.apiKey },
      body: JSON.stringify({ id }),
    })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }

  const keyed = (service: Service, key: string, ip = '10.1.2.3') =>
    lookup(service.apiUrl, partner.apiKey, ip, { 'idempotency-key': key })

  const rowsUnder = async (secretKey: string): Promise<number> => {
    const { identifierHmac } = createSecrets(secretKey)
    const { rows } = await pool.query<{ count: number }>(
      'select count(*)::int as count from profile_dataset where lid_hmac = any ($1::text[])',
      [people.map(({ lid }) => identifierHmac(`lid:${lid}`))],
    )
    return rows[0]?.count ?? 0
  }

  const underKey = async (id: string | undefined): Promise<Record<string, number>> => {
    const { keys } = await cliJson<Status>(['secrets', 'status'], newSide())
    return Object.fromEntries(
      (keys.find(({ secret_key }) => secret_key === id)?.under ?? []).map(({ use, count }) => [use, count]),
    )
  }

  const events = async (type: string): Promise<{ data: Record<string, unknown> }[]> =>
    (
      await cliJson<{ type: string; data: Record<string, unknown> }[]>(
        ['event-log', 'show', 'operator'],
        newSide(),
      )
    ).filter((event) => event.type === type)

  beforeAll(async () => {
    database = await testDatabase()
    pool = new pg.Pool({ connectionString: database.url, max: 2 })
    outside = await mkdtemp(join(tmpdir(), 'journey-rotation-'))
    file = join(outside, 'people.jsonl')
    await writeFile(file, people.map((person) => `${JSON.stringify(person)}\n`).join(''))
    receiver = createServer(async (request, response) => {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk)
      received.push({ headers: request.headers, body: Buffer.concat(chunks).toString() })
      response.writeHead(200).end('thank you')
    })
    receiver.listen(0, '127.0.0.1')
    await once(receiver, 'listening')
    first = await startService(oldSide())
    partner = await createPartner('1000', oldSide())
    unused = await createPartner('1', oldSide())
    await cliJson(['user', 'create', 'ada'], oldSide())
    token = (await cliJson<{ token: string }>(['user', 'token', 'ada'], oldSide())).token
    webhook = await cliJson(
      [
        ...['webhook', 'create', '--events', 'checkpoint', '--url'],
        `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`,
      ],
      oldSide(),
    )
    await cliJson(['profiles', 'import', file], oldSide())
    answered = await keyed(first, 'before-the-rotation')
    expect((await retrieve(first, early)).status).toBe(200)
    await cliJson(['profiles', 'erase', erased, '--yes'], oldSide())
  }, 240_000)

  afterAll(async () => {
    await first?.end('SIGKILL')
    await second?.end('SIGKILL')
    receiver?.closeAllConnections()
    receiver?.close()
    await pool?.end()
    await database?.drop()
    await rm(outside, { recursive: true, force: true })
  })

  test('processes with and without the next key check what each other makes', async () => {
    second = await startService(newSide())
    const both = [first, second]
    const { api_key: issued } = await cliJson<{ api_key: string }>(
      ['key', 'issue', partner.organizationId],
      newSide(),
    )
    for (const { apiUrl } of both) {
      expect((await lookup(apiUrl, partner.apiKey, '10.0.0.1')).status).toBe(200)
      expect((await lookup(apiUrl, issued, '10.0.0.1')).status).toBe(200)
    }
    const repeated = await keyed(second, 'before-the-rotation')
    expect(repeated.headers.get('idempotent-replayed')).toBe('true')
    expect(repeated.body).toEqual(answered.body)
    await keyed(second, 'by-the-second-process')
    expect((await keyed(first, 'by-the-second-process')).headers.get('idempotent-replayed')).toBe('true')
    for (const service of both) expect((await retrieve(service, erased)).status).toBe(404)
    await eventually(async () => {
      const { processes } = await cliJson<Status>(['secrets', 'status'], newSide())
      return processes.length === 2 ? true : undefined
    })
    expect(first.output() + second.output()).not.toContain('does not have')
  }, 180_000)

  test('a key that not every process has does not come into use', async () => {
    const { code, err } = await cli(['secrets', 'rotate', '--yes'], newSide())
    expect(code).toBe(1)
    expect(err).toContain(`process ${first.child.pid}`)
    expect(err).not.toContain(`process ${second.child.pid}`)
    expect(err).toContain('Nothing was changed')
    expect(await events('SecretKeyRotated')).toEqual([])
    expect((await lookup(first.apiUrl, partner.apiKey, '10.0.0.1')).status).toBe(200)
  })

  test('what a rotation would do is told and not done', async () => {
    await first.end('SIGTERM')
    first = await startService(newSide())
    const planned = await cliJson<{ next: string; under: { use: string; count: number }[] }>(
      ['secrets', 'rotate', '--dry-run'],
      newSide(),
    )
    expect(planned.next).toBe(secondId)
    const { out } = await cli(['secrets', 'rotate', '--dry-run'], newSide())
    expect(out.match(/people of the data set/g)).toHaveLength(1)
    const counts = Object.fromEntries(planned.under.map(({ use, count }) => [use, count]))
    expect(counts).toMatchObject({
      'API keys': 3,
      'tokens of operators': 1,
      'webhook secrets': 1,
      'people of the data set': people.length - 1,
    })
    expect(counts.suppressions).toBeGreaterThan(0)
    expect(counts['facts of the event log']).toBeGreaterThan(0)
    expect(await events('SecretKeyRotated')).toEqual([])
  })

  test('killed in the middle of making things anew it is taken up, while calls go on', async () => {
    const { child, ended } = startCli(['secrets', 'rotate', '--yes', '--json'], {
      ...newSide(),
      OPERATOR_TOKEN: token,
    })
    await eventually(async () => ((await rowsUnder(secondKey)) > 0 ? true : undefined), 60_000)
    child.kill('SIGKILL')
    expect((await ended).code).toBeNull()
    const [left, done] = [await rowsUnder(firstKey), await rowsUnder(secondKey)]
    expect(left).toBeGreaterThan(0)
    expect(left + done).toBe(people.length - 1)
    for (const service of [first, second]) {
      expect((await lookup(service.apiUrl, partner.apiKey, '10.0.0.2')).status).toBe(200)
      // Whichever key the person's row is under.
      expect((await retrieve(service, late)).status).toBe(200)
      expect((await retrieve(service, erased)).status).toBe(404)
    }
    const rotated = await cliJson<Rotated>(['secrets', 'rotate', '--yes'], {
      ...newSide(),
      OPERATOR_TOKEN: token,
    })
    expect(rotated).toMatchObject({ secret_key: secondId, former: null, left: [] })
    expect(rotated.renewed.find(({ use }) => use === 'people of the data set')?.count).toBe(left)
    expect(await rowsUnder(secondKey)).toBe(people.length - 1)
    expect(await rowsUnder(firstKey)).toBe(0)
    const [kept] = rotated.kept
    expect(kept?.secret_key).toBe(firstId)
    expect(kept?.under.join()).toMatch(/suppressions.*|facts of the event log/)
    const recorded = await events('SecretKeyRotated')
    expect(recorded.map(({ data }) => data)).toMatchObject([{ secret_key: secondId, former: firstId }])
    expect(recorded).toMatchObject([{ metadata: { actor: 'user:ada' } }])
    expect(JSON.stringify(recorded)).not.toContain(secondKey)
    expect(await events('SecretsRenewed')).toHaveLength(1)
  }, 240_000)

  test('everything made under the former key works, and is under the new one where it was used', async () => {
    const credits = async (): Promise<unknown> =>
      (await cliJson<Record<string, unknown>>(['credits', 'balance', partner.organizationId], newSide()))
        .balance
    const balance = await credits()
    for (const service of [first, second]) {
      const repeated = await keyed(service, 'before-the-rotation')
      expect(repeated.headers.get('idempotent-replayed')).toBe('true')
      expect(repeated.body).toEqual(answered.body)
      expect((await keyed(service, 'before-the-rotation', '10.9.9.9')).status).toBe(422)
      expect((await retrieve(service, erased)).status).toBe(404)
    }
    expect(await credits()).toEqual(balance)
    expect((await cli(['webhook', 'test', webhook.webhook_id], newSide())).out).toContain('200')
    const message = received.at(-1)
    const id = String(message?.headers['webhook-id'])
    const atMs = Number(message?.headers['webhook-timestamp']) * 1_000
    expect(message?.headers).toMatchObject(
      signedHeaders(webhook.secret, { id, atMs, body: message?.body ?? '' }),
    )
    // The key that was never used again stays where it was, and works.
    const used = await eventually(async () => {
      const under = await underKey(firstId)
      return under['API keys'] === 2 ? under : undefined
    })
    expect(used['tokens of operators']).toBeUndefined()
    expect(used['webhook secrets']).toBeUndefined()
    expect(used['people of the data set']).toBeUndefined()
    expect(used['seals of accounts']).toBeUndefined()
    expect((await lookup(first.apiUrl, unused.apiKey, '10.0.0.3')).status).toBe(200)
    await eventually(async () => ((await underKey(firstId))['API keys'] === 1 ? true : undefined))
  }, 240_000)

  test('an erasure finds the person whom only events of the former key name', async () => {
    const found = await cliJson<{ subjects: number }>(['profiles', 'erase', early, '--yes'], newSide())
    expect(found.subjects).toBe(1)
    for (const service of [first, second]) expect((await retrieve(service, early)).status).toBe(404)
    const again = await cliJson<{ suppressed?: number; imported: number }>(
      ['profiles', 'import', file],
      newSide(),
    )
    expect(again.imported).toBe(people.length - 2)
    for (const service of [first, second]) {
      expect((await retrieve(service, early)).status).toBe(404)
      expect((await retrieve(service, erased)).status).toBe(404)
    }
  }, 180_000)

  test('without a key that is still needed, or with another one, nothing starts', async () => {
    const lacking = await cli(['org', 'list'], withKeys(secondKey))
    expect(lacking.code).toBe(2)
    expect(lacking.err).toMatch(new RegExp(`^SECRET_KEYS_OLD: the key ${firstId} .*suppressions`))
    expect((await cli(['org', 'list'], oldSide())).err).toMatch(/^SECRET_KEY: .*Start with the old key/)
    expect((await cli(['org', 'list'], withKeys(thirdKey, firstKey))).err).toMatch(/^SECRET_KEY: /)
    const backwards = await cli(['secrets', 'rotate', '--yes'], withKeys(firstKey, secondKey))
    expect(backwards.err).toContain(`${firstId} was in use before`)
    const told = await cli(['doctor', '--json'], newSide())
    expect(told.out).toContain(`${secondId} is in use; ${firstId} is still needed`)
  })

  test('of two commands at once one key comes into use once, and every answer is right meanwhile', async () => {
    const all = withKeys(thirdKey, secondKey, firstKey)
    await Promise.all([first.end('SIGTERM'), second.end('SIGTERM')])
    first = await startService(all)
    second = await startService(all)
    let rotating = true
    const statuses: (number | string)[] = []
    const calling = (async () => {
      for (let n = 0; rotating; n++) {
        const service = n % 2 === 0 ? first : second
        statuses.push((await lookup(service.apiUrl, partner.apiKey, '10.0.0.4')).status)
        statuses.push((await keyed(service, `during-${n}`)).status)
        // On a busy machine an answer may be kept a moment after it was given: until then its key is in use.
        const repeated = await eventually(async () => {
          const answer = await keyed(n % 2 === 0 ? second : first, `during-${n}`)
          return answer.status === 409 ? undefined : answer
        })
        const replayed = repeated.headers.get('idempotent-replayed') === 'true'
        statuses.push(replayed ? 200 : `${repeated.status}, not given again`)
      }
    })()
    const both = await Promise.all([
      cli(['secrets', 'rotate', '--yes'], all),
      cli(['secrets', 'rotate', '--yes'], all),
    ])
    rotating = false
    await calling
    expect(both.map(({ code, err }) => ({ code, err }))).toEqual([
      { code: 0, err: expect.anything() },
      { code: 0, err: expect.anything() },
    ])
    expect(new Set(statuses)).toEqual(new Set([200]))
    const rotated = (
      await cliJson<{ type: string; data: Record<string, unknown> }[]>(['event-log', 'show', 'operator'], all)
    ).filter(({ type }) => type === 'SecretKeyRotated')
    expect(rotated.map(({ data }) => data.secret_key)).toEqual([secondId, thirdId])
  }, 240_000)
})

describe('the embedded default', () => {
  let dataDir = ''
  let service: Service | undefined
  const environment = () => ({ DATA_DIR: dataDir })
  const path = () => join(dataDir, 'secret_key')
  const ids = async (): Promise<string[]> =>
    (await readFile(path(), 'utf8'))
      .trim()
      .split('\n')
      .map((key) => ringKeyOf(key).id)

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'journey-rotation-'))
  })

  afterAll(async () => {
    await service?.end('SIGKILL')
    await rm(dataDir, { recursive: true, force: true })
  })

  test('makes its keys itself while it runs, and lets one leave that nothing depends on', async () => {
    service = await startService(environment())
    const demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8')) as { api_key: string }
    const answer = async () => (await lookup(service?.apiUrl ?? '', demo.api_key, '10.0.0.1')).status
    expect(await answer()).toBe(200)
    const [one] = await ids()
    const rotated = await cliJson<Rotated>(['secrets', 'rotate', '--yes'], environment())
    const [two, ...rest] = await ids()
    expect(rest).toEqual([one])
    expect(rotated).toMatchObject({ secret_key: two, former: one, left: [] })
    // Nothing was made under the second key but what is made anew.
    const again = await cliJson<Rotated>(['secrets', 'rotate', '--yes'], environment())
    const [three, ...others] = await ids()
    expect(others).toEqual([one])
    expect(again).toMatchObject({ secret_key: three, former: two, left: [two] })
    expect(await answer()).toBe(200)
    const holding = new RegExp(`^host +pid +secret_keys +in_use\n.+ ${three}, ${one} +${three}$`, 'm')
    // The service gives up the key that left when it looks next.
    await eventually(async () =>
      holding.test((await cli(['secrets', 'status'], environment())).out) ? true : undefined,
    )
    for (const _ of ['with the third', 'with the fourth']) {
      await cliJson<Rotated>(['secrets', 'rotate', '--yes'], environment())
      expect(await answer()).toBe(200)
    }
    expect(await ids()).toHaveLength(4)
    for (const how of ['--dry-run', '--yes']) {
      const full = await cli(['secrets', 'rotate', how], environment())
      expect([full.code, full.err]).toEqual([1, expect.stringContaining('4 keys are needed already')])
    }
    // The file that opens what is sealed this month was made with it.
    const kept = await cli(['secrets', 'give-up', one ?? '', '--yes'], environment())
    expect([kept.code, kept.err]).toEqual([1, expect.stringContaining('1 epoch keys: they end')])
    expect(await ids()).toHaveLength(4)
    expect(await service.end('SIGTERM')).toBe(0)
    service = await startService(environment())
    expect(await answer()).toBe(200)
    await writeFile(path(), `${(await readFile(path(), 'utf8')).split('\n')[0]}\n`)
    const lacking = await cli(['org', 'list'], environment())
    expect(lacking.code).toBe(2)
    expect(lacking.err).toContain(`the key ${one} is not there and is still needed for`)
  }, 240_000)
})
