/** A key's page, test keys, and sample calls with a key. */
import { execFile } from 'node:child_process'
import { createServer } from 'node:http'
import { promisify } from 'node:util'
import { ulid } from 'ulid'
import { describe, expect, test } from 'vitest'
import { firstCalls } from '../../src/dashboard/first-call.ts'
import { credits } from '../../src/dashboard/format.ts'
import { takeForm } from '../../src/dashboard/once.ts'
import { createWorks } from '../../src/dashboard/works.ts'
import { testOrganizationOf } from '../../src/events/test-organization.ts'
import { browserOfAda, roomForFile } from './dashboard-host.ts'
import { openScene } from './scene.ts'

const room = await roomForFile()
const ada = await browserOfAda(room)
const scene = await openScene(room, { nowMs: Date.now(), days: 3 })
const base = `/organizations/${scene.organizationId}`

describe("a key's page", () => {
  test('shows its permissions, its cost, and its calls by day', async () => {
    const { statusCode, body } = await ada.get(`${base}/keys/${scene.keyId}`)
    expect(statusCode).toBe(200)
    expect(body).toContain(
      'This key can use ip lookup, email validation, profnet scraping, from any address.',
    )
    expect(body).toContain(`key=${scene.keyId}`)
    const { rows } = await room.foundation.pool.query<{ calls: number; credits: number }>(
      `select sum(calls)::integer as calls, (sum(charged_micro) / 1000000)::integer as credits
         from usage_days where key_id = $1`,
      [scene.keyId],
    )
    expect(body).toContain(`<dt>Calls, 30 days</dt><dd><strong>${rows[0]?.calls}</strong>`)
    expect(body).toContain(`<dt>Charged, total</dt><dd>${rows[0]?.credits}</dd>`)
    expect((await ada.get(base)).body).toContain(`href="${base}/keys/${scene.keyId}"`)
  })

  test('shows how it was used in a range, and its first and last call in it', async () => {
    const section = async (query: string) =>
      /id="investigate"[\s\S]*?<\/section>/.exec(
        (await ada.get(`${base}/keys/${scene.keyId}${query}`)).body,
      )?.[0] ?? ''
    const { rows } = await room.foundation.pool.query<{
      first: Date
      last: Date
      calls: number
      micro: string
    }>(
      `select min(effective_at) as first, max(effective_at) as last, sum(calls)::integer as calls,
              (-sum(amount_micro))::text as micro
         from ledger_lines where key_id = $1 and calls is not null`,
      [scene.keyId],
    )
    const [all] = rows
    if (all === undefined) throw new Error('no calls')
    const week = await section('')
    for (const at of [all.first, all.last]) expect(week).toContain(`<time datetime="${at.toISOString()}">`)
    expect(week).toContain(`<dt>Calls</dt><dd><strong>${all.calls}</strong></dd>`)
    expect(week).toContain(`<dt>Charged</dt><dd>${credits(all.micro)}</dd>`)
    expect(week).toContain('ip lookup')
    expect(week).toContain('The IP addresses of callers are not recorded.')
    const before = await section('?range=custom&from=2020-01-01&to=2020-01-31')
    expect(before).toContain('The key was not used in this range.')
    expect(before).toContain(`to=${encodeURIComponent('2020-02-01T00:00:00.000Z')}`)
    const wrong = await ada.get(`${base}/keys/${scene.keyId}?range=custom&from=2020-02-01&to=2020-01-01`)
    expect([wrong.statusCode, wrong.body.includes('is not after 2020-02-01')]).toEqual([422, true])
  })
})

test('a test key belongs to the organization for tests, and its page and the organization link there', async () => {
  expect((await ada.get(base)).body).not.toContain('Test keys')
  const asked = { name: 'try', permissions: ['ip_lookup'], test: 'on' }
  const answer = await ada.submit(`${base}/key/issue`, asked)
  expect(answer.statusCode).toBe(200)
  expect(answer.body).toContain('<code id="secret">enl_test_')
  const own = testOrganizationOf(scene.organizationId)
  expect(answer.body).toContain(`href="/organizations/${own}"`)
  const [{ body }, { body: test }] = [await ada.get(base), await ada.get(`/organizations/${own}`)]
  expect(body).toContain(`<a href="/organizations/${own}#keys">Test keys</a>`)
  expect(test).toContain(`<a href="${base}#keys">Live keys</a>`)
})

describe('sample calls with a key', () => {
  const asked = { apiUrl: 'http://127.0.0.1:9', dashboardUrl: 'http://127.0.0.1:8', apiKey: 'enl_live_x' }

  test.each([
    [['ip_lookup', 'email_validation'], '/v1/ip/lookup'],
    [['email_validation'], '/v1/email/validate'],
    [['profnet_scraping'], '/v1/profnet/profile'],
    [[], 'http://127.0.0.1:8/whoami'],
    [['ledger_read', 'pixel_control'], 'http://127.0.0.1:8/whoami'],
  ])('use the permissions of a key with %j', (permissions, expected) => {
    for (const { text } of firstCalls({ ...asked, permissions })) expect(text).toContain(expected)
  })

  test('reach a server, with the key', async () => {
    const seen: unknown[] = []
    const server = createServer((request, response) => {
      let body = ''
      request.on('data', (chunk) => {
        body += String(chunk)
      })
      request.on('end', () => {
        seen.push({ key: request.headers['x-api-key'], url: request.url, body })
        response.setHeader('content-type', 'application/json').end('{"ok":true}')
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    const apiUrl = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`
    const [, typescript] = firstCalls({ ...asked, apiUrl, permissions: ['ip_lookup'] })
    const run = promisify(execFile)
    const { stdout } = await run(process.execPath, [
      '--input-type=module-typescript',
      '-e',
      typescript?.text ?? '',
    ])
    expect(stdout).toContain('ok: true')
    server.close()
    // This test runs only the TypeScript sample. The browser tests copy the rest in a real browser and run them with a real key.
    const call = { key: 'enl_live_x', url: '/v1/ip/lookup', body: '{"ip":"8.8.8.8"}' }
    expect(seen).toEqual([call])
  })
})

describe('a form', () => {
  const nowMs = Date.now()
  const taking = (once: string, path = '/a', atMs = nowMs) =>
    takeForm(room.foundation.pool, { user: 'ada', path, once }, atMs)

  test('is accepted once per person and path', async () => {
    const once = ulid(nowMs)
    await taking(once)
    await expect(taking(once)).rejects.toThrow('')
    await taking(once, '/b')
    await takeForm(room.foundation.pool, { user: 'bob', path: '/a', once }, nowMs)
  })

  test.each(['', 'x', '8ZZZZZZZZZZZZZZZZZZZZZZZZZ', '\0'.repeat(26)])(
    'without a token of ours is refused: %j',
    async (once) => {
      await expect(taking(once)).rejects.toThrow('has expired')
    },
  )

  test('is refused if it is older than half a day, or from the future', async () => {
    const half = 12 * 60 * 60 * 1_000
    await expect(taking(ulid(nowMs - half - 1))).rejects.toThrow('has expired')
    await taking(ulid(nowMs - half))
    await expect(taking(ulid(nowMs + 60_001))).rejects.toThrow('has expired')
  })
})

describe('work that takes longer than a page', () => {
  const asker = { user: 'ada', organizationId: null }
  const asked = { key: 'k', title: 'Counting', owner: 'ada', asker }

  test('runs once, however often it is requested, until its result has been read', async () => {
    const works = createWorks()
    let done = (_value: number): void => undefined
    let runs = 0
    const run = () => {
      runs++
      return new Promise<number>((resolve) => {
        done = resolve
      })
    }
    for (let i = 0; i < 2; i++) expect(await works.soon({ ...asked, run }, 5)).toHaveProperty('work')
    expect(runs).toBe(1)
    done(7)
    expect(await works.soon({ ...asked, run }, 1_000)).toEqual({ result: 7 })
    expect(runs).toBe(1)
    expect(await works.soon({ ...asked, run }, 5)).toHaveProperty('work')
    expect(runs).toBe(2)
  })

  test('gives its result only to the person who requested it', async () => {
    const works = createWorks()
    const run = (result: string) => () =>
      new Promise<string>((resolve) => setTimeout(() => resolve(result), 50))
    expect(await works.soon({ ...asked, run: run('of ada') }, 1)).toHaveProperty('work')
    expect(await works.soon({ ...asked, owner: 'bob', run: run('of bob') }, 1_000)).toEqual({
      result: 'of bob',
    })
    expect(await works.soon({ ...asked, run: run('again') }, 1_000)).toEqual({ result: 'of ada' })
  })

  test('throws its failure to the person who requests its result', async () => {
    const works = createWorks()
    const run = async (): Promise<never> => {
      throw new Error('no disk')
    }
    await expect(works.soon({ ...asked, run }, 1_000)).rejects.toThrow('no disk')
  })

  const endless = () => new Promise<never>(() => undefined)

  test('is not started for a person or an organization with four running; others have their own limit', async () => {
    const works = createWorks()
    const start = (key: string, organizationId: string | null, user = 'ada') =>
      works.soon(
        {
          ...asked,
          asker: { user, organizationId },
          run: endless,
          key: `${organizationId} ${user} ${key}`,
        },
        1,
      )
    for (const key of ['a', 'b', 'c', 'd']) await start(key, 'org_one')
    await expect(start('e', 'org_one', 'eve')).rejects.toThrow('too many pages are being computed')
    await start('a', 'org_two')
    await expect(start('e', 'org_one', 'eve')).rejects.toThrow('too many pages are being computed')
    for (const key of ['e', 'f', 'g', 'h']) await start(key, null)
    await expect(start('i', null)).rejects.toThrow('too many pages are being computed')
    await start('i', null, 'bob')
  })

  test('no longer counts as running when it ends, even after a failure', async () => {
    const works = createWorks()
    for (let i = 0; i < 12; i++) {
      const run = async () => {
        if (i % 2 === 0) throw new Error('no disk')
      }
      await works.soon({ ...asked, key: `${i}`, run }, 1_000).catch(() => undefined)
    }
  })

  test('is forgotten ten minutes after its end, or when its owners have started fifty others', async () => {
    let nowMs = 0
    const works = createWorks(() => nowMs)
    /** Requests work that ends just after its page was sent, so that its result stays stored. */
    const start = async (key: string, organizationId: string | null): Promise<void> => {
      const { promise, resolve } = Promise.withResolvers<string>()
      const asker = { user: 'ada', organizationId }
      expect(await works.soon({ ...asked, key, asker, run: () => promise }, 0)).toHaveProperty('work')
      resolve('stored')
      await new Promise((done) => setTimeout(done))
    }
    const isStored = async (key: string): Promise<boolean> => {
      const outcome = await works.soon({ ...asked, key, run: async () => 'new' }, 1_000)
      return 'result' in outcome && outcome.result === 'stored'
    }
    await start('first', null)
    for (let i = 0; i < 60; i++) await start(`one ${i}`, 'org_one')
    expect(await isStored('first')).toBe(true)
    await start('second', null)
    nowMs = 10 * 60_000
    expect(await isStored('second')).toBe(true)
    await start('third', null)
    for (let i = 0; i < 50; i++) await start(`own ${i}`, null)
    expect(await isStored('third')).toBe(false)
    await start('last', null)
    nowMs += 10 * 60_000 + 1
    expect(await isStored('last')).toBe(false)
  })
})
