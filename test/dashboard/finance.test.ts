/** Months, the statement with filters, and lots, as finance works with them. */
import { createHash } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { closeMonth } from '../../src/administration/months/close-month.ts'
import { closableAt } from '../../src/administration/months/statements.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { monthBefore, monthStart } from '../../src/billing/months.ts'
import { until } from '../support/house.ts'
import { verifyReceipt } from '../support/verify-receipt.ts'
import {
  type Browser,
  type DashboardHost,
  encoded,
  give,
  hiddenIn,
  openBrowser,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

let room: DashboardHost
let ada: Browser
let scene: Scene
let base = ''
const user = { name: 'ada', password: 'correct horse battery staple' }
const nowMs = Date.now()
const monthOf = (before: number): string => {
  const now = new Date(nowMs)
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - before)).toISOString().slice(0, 7)
}

/** The last one that may be closed: in the first minutes of a month not the one before it. */
const closable = closableAt(monthOf(1)) <= nowMs ? monthOf(1) : monthOf(2)
/** Calls begin in that month: an earlier one would have to be closed first. */
const days = Math.min(40, Math.floor((nowMs - Date.parse(monthStart(closable))) / 86_400_000))

beforeAll(async () => {
  room = await openDashboardHost()
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  scene = await openScene(room, { nowMs, days })
  base = `/organizations/${scene.organizationId}`
})
afterAll(() => room?.close())

/** Follows to the page of what was begun, until it has come to something. */
const ended = async (path: string) => {
  for (let looks = 0; looks < 2_000; looks++) {
    const answer = await ada.get(path)
    if (!answer.body.includes('data-progress=')) return answer
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error('it never ended')
}

const figure = (body: string, name: string): string =>
  new RegExp(`<dt>${name}</dt><dd>(?:<strong>)?([^<]+)`).exec(body)?.[1] ?? ''

describe('months', () => {
  test('are listed with what the balance was, newest first', async () => {
    const { body } = await ended(`${base}/months`)
    const months = [...body.matchAll(/months\/(\d{4}-\d\d)"/g)].map(([, month]) => month)
    expect(months).toEqual(months.toSorted().reverse())
    expect(months[0]).toBe(monthOf(0))
    expect(months.length).toBeGreaterThan(1)
    // The open month has what it came to so far.
    const row = /months\/(\d{4}-\d\d)"[\s\S]*?<\/tr>/.exec(body)?.[0] ?? ''
    const cell = (head: string) => new RegExp(`data-head="${head}"><div>([^<]+)`).exec(row)?.[1] ?? ''
    const own = (await ended(`${base}/months/${monthOf(0)}`)).body
    expect([cell('Charged'), cell('Calls')]).toEqual([figure(own, 'Charged'), figure(own, 'Calls')])
  })

  test('say what they come to beside the month before, which opening and closing join', async () => {
    const [now, before] = await Promise.all([0, 1].map((one) => ended(`${base}/months/${monthOf(one)}`)))
    if (now === undefined || before === undefined) throw new Error('no pages')
    expect(figure(now.body, 'Opening')).toBe(figure(before.body, 'Closing'))
    expect(now.body).toContain(`Beside ${monthOf(1)}`)
    expect(now.body).toContain('It can be closed from')
    expect(now.body).not.toContain('/ledger/close')
  })

  test('are closed by a form that says what will happen, once, and their file comes to the digest', async () => {
    const month = closable
    const path = `${base}/months/${month}`
    // What was granted is effective now; the month before begins with the first call.
    const page = await ended(path)
    expect(page.body).toContain(`href="${base}/ledger/close?month=${month}"`)
    const done = await give(ada, `${base}/ledger/close`, { month })
    expect([done.statusCode, done.body.includes('<dt>State</dt><dd>closed</dd>')]).toEqual([200, true])
    const closed = await ended(path)
    expect(closed.body).toContain('Closed</span> at ledger revision')
    const digest = /class="id whole">([\w-]{43})</.exec(closed.body)?.[1]
    const file = await ada.get(`${path}/statement.jsonl`)
    expect(file.headers['content-disposition']).toContain(`${scene.organizationId}-${month}.jsonl`)
    expect(createHash('sha256').update(file.body).digest('base64url')).toBe(digest)
    const again = await closeMonth(room.foundation, {
      ...{ organizationId: scene.organizationId, month, actor: 'cli', nowMs: Date.now() },
    })
    expect(again).toMatchObject({ already: true, closed: { digest } })
    const event = (
      await room.foundation.eventLog.read(`ledger-${scene.organizationId}`, {
        direction: 'backwards',
        max: 1,
      })
    )[0]
    expect(event?.type).toBe('MonthClosed')
    expect(event?.metadata).toContain('"actor":"user:ada"')
    const earlier = await ended(`${base}/months/${monthBefore(month)}`)
    expect(earlier.body).toContain(`Closed with ${month}: nothing counted in it`)
    expect(earlier.body).not.toContain(String(digest))
  })

  test('that are no months, or are still to come, are no pages', async () => {
    for (const month of ['2026-13', 'x', '%00', '9999-01', monthOf(-1)])
      for (const rest of ['', '/statement.csv', '/statement.jsonl'])
        expect((await ada.get(`${base}/months/${month}${rest}`)).statusCode).toBe(404)
  })

  test('as CSV hold every line', async () => {
    const { body, headers } = await ada.get(`${base}/months/${monthOf(1)}/statement.csv`)
    expect(headers['content-type']).toBe('text/csv; charset=utf-8')
    expect(body).toMatch(/^organization|^kind|^revision/)
    expect(body.split('\r\n').length).toBeGreaterThan(20)
  })
})

test('statements of one partner that take long leave people of the operator theirs', async () => {
  const { organizationId } = scene
  const partner = { name: 'pat', role: 'partner', organizationId, actor: 'cli' } as const
  const pat = await signedIn(room, await userWhoChose(room, partner))
  const { eventLog } = room.foundation
  const { promise: mayRead, resolve: readOn } = Promise.withResolvers<void>()
  const read = eventLog.read.bind(eventLog)
  let reading = 0
  const slow = vi.spyOn(eventLog, 'read').mockImplementation(async (...asked) => {
    // Who acts is read from the log too.
    if (asked[0] === `ledger-${organizationId}`) {
      reading += 1
      await mayRead
    }
    return read(...asked)
  })
  const path = `${base}/months/${monthOf(1)}/statement.csv`
  try {
    const taken = Array.from({ length: 4 }, () => pat.get(path))
    await until('all four are read', async () => reading >= 4)
    const refused = await pat.get(path)
    expect([refused.statusCode, refused.headers['retry-after']]).toEqual([503, '10'])
    const others = Array.from({ length: 4 }, () => ada.get(path))
    await until('those of finance are read', async () => reading >= 8)
    readOn()
    const answers = await Promise.all([...taken, ...others])
    expect(answers.map(({ statusCode }) => statusCode)).toEqual(Array(8).fill(200))
    expect((await pat.get(path)).statusCode).toBe(200)
  } finally {
    readOn()
    slow.mockRestore()
  }
})

describe('long work', () => {
  test('is told as a stream of events that ends, to people whose role may do it', async () => {
    const { eventLog } = room.foundation
    const { promise: mayRead, resolve: readOn } = Promise.withResolvers<void>()
    const read = eventLog.read.bind(eventLog)
    const slow = vi.spyOn(eventLog, 'read').mockImplementation(async (...asked) => {
      if (asked[0] === `ledger-${scene.organizationId}`) await mayRead
      return read(...asked)
    })
    try {
      const sent = await ada.submit(`${base}/ledger/reconcile`, {})
      const work = String(sent.headers.location)
      expect(work).toMatch(/^\/jobs\/[0-9a-f-]{36}$/)
      expect((await ada.get(work)).body).toContain(`data-progress="${work}/progress"`)
      readOn()
      const { headers, body } = await ada.get(`${work}/progress`)
      expect(headers['content-type']).toBe('text/event-stream; charset=utf-8')
      expect(body).toMatch(/^retry: \d+\n\n[\s\S]*event: done\ndata: done\n\n$/)
      expect((await ada.get(work)).body).toContain('<h1>Done</h1>')
      expect((await ada.get('/commands/jobs/work')).body).toContain(`href="${work}"`)
      for (const [role, organizationId, status] of [
        ['partner', scene.organizationId, 403],
        ['viewer', null, 404],
      ] as const) {
        const other = await userWhoChose(room, {
          name: `${role}-1`,
          role,
          organizationId,
          actor: 'cli:setup',
        })
        const browser = await signedIn(room, other)
        for (const one of [work, `${work}/progress`])
          expect([role, (await browser.get(one)).statusCode]).toEqual([role, status])
      }
    } finally {
      readOn()
      slow.mockRestore()
    }
  })

  test('that never was is no page', async () => {
    for (const path of ['/jobs/x', '/jobs/%00/progress', '/waiting/%00/progress'])
      expect((await ada.get(path)).statusCode).toBe(404)
  })
})

describe('the statement with filters', () => {
  const lines = (body: string): number => body.match(/<tr id="line-/g)?.length ?? 0

  test('shows lines that fit alone, and pages on to the last of them', async () => {
    let path: string | undefined = `${base}/statement?kind=call&outcome=answered&key=${scene.keyId}`
    let found = 0
    const ids = new Set<string>()
    for (let page = 0; path !== undefined && page < 100; page++) {
      const { body, statusCode } = await ada.get(path)
      expect(statusCode).toBe(200)
      found += lines(body)
      for (const [, id = ''] of body.matchAll(/<tr id="line-(\d+)"/g)) ids.add(id)
      path = /id="pager"[^>]*><a [^>]*href="([^"]+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&')
    }
    const { rows } = await room.foundation.pool.query<{ n: number }>(
      `select count(*)::integer as n from ledger_lines
        where ledger = ledger_key($1) and kind = 'call' and outcome = 'answered' and key_id = $2`,
      [scene.organizationId, scene.keyId],
    )
    expect(found).toBeGreaterThan(50)
    expect([found, ids.size]).toEqual([rows[0]?.n, rows[0]?.n])
  })

  test('of a day holds that day alone', async () => {
    const day = new Date(nowMs - 5 * 86_400_000).toISOString().slice(0, 10)
    const { body } = await ada.get(`${base}/statement?from=${day}&to=${day}`)
    expect(lines(body)).toBeGreaterThan(0)
    for (const [, at] of body.matchAll(/<td data-head="Time \(UTC\)"><div><time datetime="([^T]+)T/g))
      expect(at).toBe(day)
  })

  test.each([
    'kind=grant',
    'kind=rate_limited',
    'kind=refused',
    'capability=ip_lookup',
    'from=2000-01-01&to=2000-01-02',
  ])('takes %s', async (query) => {
    expect((await ada.get(`${base}/statement?${query}`)).statusCode).toBe(200)
  })

  test.each([
    'kind=%00',
    'key=%00',
    'from=2026-99-99',
    'to=9999-12-31',
    'before=%00',
    'before=0',
    'before=999999999999999',
    'outcome=%27',
  ])('is not broken by %s', async (query) => {
    expect((await ada.get(`${base}/statement?${query}`)).statusCode).toBe(200)
  })

  test('of an organization without lines says so', async () => {
    const { organizationId } = await createOrganization(room.foundation, {
      name: 'None',
      overdraftLimit: 0n,
      actor: 'cli',
    })
    await room.caughtUp()
    for (const query of ['', '?from=2026-01-01']) {
      const { body } = await ada.get(`/organizations/${organizationId}/statement${query}`)
      expect(body).toContain('No line fits.')
    }
  })
})

describe('lots', () => {
  test('show why they were opened, and are taken back once, with a reason', async () => {
    const { organizationId } = await createOrganization(room.foundation, {
      name: 'Lots',
      overdraftLimit: 0n,
      actor: 'cli',
    })
    for (const [amount, reason] of [
      ['10', 'first <b>'],
      ['20.5', 'second'],
    ] as const)
      await grant(room.foundation, {
        ...{
          organizationId,
          amount: parseCredits(amount),
          priority: 100,
          expiresAt: null,
          reason,
          actor: 'cli',
        },
      })
    await room.caughtUp()
    const own = `/organizations/${organizationId}/lots`
    const { body } = await ada.get(own)
    expect(body).toContain('first &lt;b&gt;')
    const path = /href="([^"]+\/void\?grant=[^"]+)"/.exec(body)?.[1] ?? ''
    const grantId = path.split('=')[1] ?? ''
    expect((await ada.get(path)).body).toContain(`value="${grantId}" required readonly`)
    const [action = ''] = path.split('?')
    expect((await ada.submit(path, { grant: grantId, reason: ' ' }, action)).statusCode).toBe(422)
    const asked = await ada.submit(path, { grant: grantId, reason: 'a mistake' }, action)
    expect(asked.body).toContain('its balance becomes 20.5')
    const done = await ada.post(action, encoded(hiddenIn(asked.body)))
    expect([done.statusCode, done.body.includes('<h1>Done</h1>')]).toEqual([200, true])
    expect((await ada.get(own)).body).not.toContain('first &lt;b&gt;')
    expect((await ada.get(`/organizations/${organizationId}`)).body).toContain('<strong>20.5</strong>')
    const again = await ada.submit(path, { grant: grantId, reason: 'a mistake' }, action)
    expect(again.statusCode).toBe(422)
  })

  test('of another organization are no lots of this one', async () => {
    const theirs = /void\?grant=([^"]+)"/.exec((await ada.get(`${base}/lots`)).body)?.[1] ?? ''
    const { organizationId } = await createOrganization(room.foundation, {
      name: 'Mine',
      overdraftLimit: 0n,
      actor: 'cli',
    })
    await room.caughtUp()
    const path = `/organizations/${organizationId}/credits/void`
    for (const grant of [theirs, 'x', '00000000-0000-0000-0000-000000000000'])
      expect((await ada.submit(path, { grant, reason: 'x' })).statusCode).toBe(422)
  })
})

describe('a call', () => {
  const call = (): string => `${base}/calls/${scene.requestId}`

  test('is told from its request to its row', async () => {
    const { body } = await ada.get(call())
    for (const told of [
      'the request was decided: answered',
      'KeyUsed',
      'CreditCharged',
      'its row is in the statement',
    ])
      expect(body).toContain(told)
    expect(body).toContain('no signed checkpoint covers it yet')
    expect((await ada.get(`${call()}/receipt.json`)).statusCode).toBe(404)
  })

  test('has a receipt once a checkpoint covers it, which proves it to a stranger', async () => {
    await room.foundation.checkpoints.make()
    expect((await ada.get(call())).body).toContain(`href="${call()}/receipt.json"`)
    const { body, headers } = await ada.get(`${call()}/receipt.json`)
    expect(headers['content-disposition']).toContain(`receipt-${scene.requestId}.json`)
    verifyReceipt(JSON.parse(body))
    expect(() => verifyReceipt(JSON.parse(body.replace('KeyUsed', 'KeyUsee')))).toThrow()
  })

  test('is refunded after a page that says what that will do, once', async () => {
    const path = `${base}/credits/refund`
    expect((await ada.get(call())).body).toContain(`href="${path}?request=${scene.requestId}"`)
    const wanted = { request: scene.requestId, amount: '0.25', reason: 'slow <b>', reference: 'CRN <1>' }
    for (const [amount, why] of [
      ['0', 'A positive decimal number'],
      ['many', 'A positive decimal number'],
      ['2', 'costs 1 now, which is less than 2'],
    ] as const) {
      const wrong = await ada.submit(path, { ...wanted, amount })
      expect([wrong.statusCode, wrong.body.includes(why)]).toEqual([422, true])
    }
    const shown = await ada.submit(path, wanted)
    expect(shown.body).toContain('<dt>Costs now</dt><dd>0.75</dd>')
    expect(shown.body).toContain('slow &lt;b&gt;')
    const head = await room.foundation.eventLog.head()
    const form = encoded(hiddenIn(shown.body))
    const sent = await Promise.all([1, 2].map(() => ada.post(path, form)))
    // The second one gets the page of the first, if that is still under way.
    for (const { statusCode } of sent) expect([200, 409]).toContain(statusCode)
    // What the reference names, and the refund.
    expect(await room.foundation.eventLog.head()).toBe(head + 2n)
    const after = await ada.get(call())
    expect(after.body).toContain('<dt>Costs now</dt><dd>0.75</dd>')
    expect(after.body).toContain('refund of 0.25: slow &lt;b&gt;')
    expect((await ada.submit(path, wanted)).body).toContain(
      'it was done under the reference &quot;CRN &lt;1&gt;&quot; already',
    )
    const other = await ada.submit(path, { ...wanted, amount: '0.2' })
    expect([other.statusCode, other.body.includes('asked for was a refund of 0.2 credits')]).toEqual([
      422,
      true,
    ])
    expect(await room.foundation.eventLog.head()).toBe(head + 2n)
  })

  test('of another organization is no call of this one', async () => {
    const { organizationId } = await createOrganization(room.foundation, {
      name: 'Elsewhere',
      overdraftLimit: 0n,
      actor: 'cli',
    })
    await room.caughtUp()
    const path = `/organizations/${organizationId}/calls/${scene.requestId}`
    for (const rest of ['', '/receipt.json']) expect((await ada.get(`${path}${rest}`)).statusCode).toBe(404)
    const refund = `/organizations/${organizationId}/credits/refund`
    const answer = await ada.submit(refund, { request: scene.requestId, reason: 'x' })
    expect([answer.statusCode, answer.body.includes('holds no call')]).toEqual([422, true])
  })
})

test('none of it is for people who are not signed in', async () => {
  const stranger = openBrowser(room.host)
  for (const rest of [
    'months',
    'months/2026-01',
    'months/2026-01/statement.csv',
    'statement',
    'lots',
    'usage.csv',
  ])
    expect((await stranger.get(`${base}/${rest}`)).statusCode).toBe(303)
})
