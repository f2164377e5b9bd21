/** Months, the filtered statement, lots, and prices, as finance uses them. */
import { createHash } from 'node:crypto'
import { ulid } from 'ulid'
import { describe, expect, test } from 'vitest'
import { closeMonth } from '../../src/administration/months/close-month.ts'
import { closableAt } from '../../src/administration/months/statements.ts'
import { pricesAt, proposePriceBook, withdrawPrices } from '../../src/administration/prices/prices.ts'
import { monthBefore, monthStart } from '../../src/billing/months.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { holdCalls } from '../support/held-calls.ts'
import { until } from '../support/house.ts'
import { verifyReceipt } from '../support/verify-receipt.ts'
import {
  browserOf,
  browserOfAda,
  encoded,
  give,
  hiddenIn,
  roomForFile,
  settled,
  tokenIn,
  unescaped,
} from './dashboard-host.ts'
import { openScene } from './scene.ts'

const nowMs = Date.now()
const monthOf = (before: number): string => {
  const now = new Date(nowMs)
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - before)).toISOString().slice(0, 7)
}

/** The last month that can be closed. In the first minutes of a month, this is not the previous month. */
const closable = closableAt(monthOf(1)) <= nowMs ? monthOf(1) : monthOf(2)
/** The number of days with calls. The calls begin in the closable month, because any earlier month would have to be closed first. */
const days = Math.min(40, Math.floor((nowMs - Date.parse(monthStart(closable))) / 86_400_000))

const room = await roomForFile()
const ada = await browserOfAda(room)
const scene = await openScene(room, { nowMs, days })
const base = `/organizations/${scene.organizationId}`

/** Follows the page of long-running work until there is a result. */
const ended = (path: string) => settled(ada, path)

/** Makes reads of the ledger wait. The log is also read to check the actor, and this read must not wait. */
const holdReads = () =>
  holdCalls(room.foundation.eventLog, 'read', (stream) => stream === `ledger-${scene.organizationId}`)

const figure = (body: string, name: string): string =>
  new RegExp(`<dt>${name}</dt><dd>(?:<strong>)?([^<]+)`).exec(body)?.[1] ?? ''

describe('months', () => {
  test('are listed with their balance, newest first', async () => {
    const { body } = await ended(`${base}/ledger/months`)
    const months = [...body.matchAll(/ledger\/totals\?month=(\d{4}-\d\d)"/g)].map(([, month]) => month)
    expect(months).toEqual(months.toSorted().reverse())
    expect(months[0]).toBe(monthOf(0))
    expect(months.length).toBeGreaterThan(1)
    // The row of the open month shows the figures so far.
    const row = /<tbody>[\s\S]*?<\/tr>/.exec(body)?.[0] ?? ''
    const cell = (head: string) => new RegExp(`data-head="${head}"><div>(.*?)</div>`).exec(row)?.[1] ?? ''
    const own = (await ended(`${base}/ledger/totals?month=${monthOf(0)}`)).body
    for (const head of ['Opening', 'Closing', 'Charged', 'Calls'])
      expect(own).toContain(`<dt>${head}</dt><dd>${cell(head)}</dd>`)
    expect(cell('Charged')).toMatch(/^[1-9]/)
  })

  test("are closed once, with a form that announces the result, and their file has the closing's digest", async () => {
    const month = closable
    const path = `${base}/ledger/totals?month=${month}`
    // Grants are effective now, so the previous month begins with the first call.
    const page = await ended(path)
    expect(page.body).toContain(`href="${base}/ledger/close?month=${month}"`)
    const empty = await ended(`${base}/ledger/totals?month=${monthBefore(month)}`)
    expect(empty.body).toContain('Nothing to close: the ledger has no lines')
    expect(empty.body).not.toContain('/ledger/close?')
    const done = await give(ada, `${base}/ledger/close`, { month })
    expect([done.statusCode, done.body.includes('<dt>State</dt><dd>closed</dd>')]).toEqual([200, true])
    const closed = await ended(path)
    expect(closed.body).toContain('Closed at ledger revision')
    expect(closed.body).not.toContain('/ledger/close?')
    const digest = /class="id whole" data-copyable>([\w-]{43})</.exec(closed.body)?.[1]
    const link = `${base}/ledger/statement/file?month=${month}&jsonl=on`
    expect(unescaped(closed.body)).toContain(`href="${link}"`)
    const file = await ada.get(link)
    expect(file.headers['content-disposition']).toContain(`${scene.organizationId}-${month}.jsonl`)
    expect(createHash('sha256').update(file.body).digest('base64url')).toBe(digest)
    const again = await closeMonth(room.foundation, {
      organizationId: scene.organizationId,
      month,
      actor: 'cli',
      nowMs: Date.now(),
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
    const earlier = await ended(`${base}/ledger/totals?month=${monthBefore(month)}`)
    expect(earlier.body).toContain(`Closed with ${month}, because nothing was recorded for this month`)
    expect(earlier.body).not.toContain(String(digest))
  })

  test('are compared with the previous month', async () => {
    const totals = async (ago: number) => (await ended(`${base}/ledger/totals?month=${monthOf(ago)}`)).body
    const [now, before] = [await totals(0), await totals(1)]
    const compared = now.split(`<h2>Compared with ${monthOf(1)}</h2>`)[1]?.split('</table>')[0] ?? ''
    const numberIn = (text: string): number => Number(text.replaceAll(/<[^>]*>|[+,]|overdrawn/g, ''))
    expect(now).toContain(`<h2>Northwind Traders in ${monthOf(0)}</h2>`)
    expect(now).toContain(`href="${base}/ledger/verify">Verify the ledger</a>`)
    for (const [total, name] of [
      ['charged', 'Charged'],
      ['closing', 'Closing'],
      ['calls', 'Calls'],
    ] as const) {
      const figures = [now, before].map((body) =>
        numberIn(new RegExp(`<dt>${name}</dt><dd>(.*?)</dd>`).exec(body)?.[1] ?? 'missing'),
      )
      const [row = ''] = new RegExp(`>${total}<.*?</tr>`).exec(compared) ?? []
      const cells = [...row.matchAll(/<div>(.*?)<\/div>/g)].map(([, cell = '']) => numberIn(cell))
      expect([total, ...cells]).toEqual([total, ...figures, Number(figures[0]) - Number(figures[1])])
    }
    expect(figure(before, 'Charged')).toMatch(/^[1-9]/)
  })

  test('that are invalid or in the future have no totals and no file', async () => {
    for (const month of ['2026-13', 'x', '%00', '9999-01', monthOf(-1)])
      for (const path of ['totals?', 'statement/file?csv=on&', 'statement/file?jsonl=on&'])
        expect((await ada.get(`${base}/ledger/${path}month=${month}`)).statusCode).toBe(422)
  })

  test('are shown to every role that can open the organization, and their files only to some', async () => {
    const opal = await browserOf(room, { name: 'opal', role: 'operations' })
    const page = await opal.get(`${base}/ledger/totals?month=${monthOf(0)}`)
    expect([page.statusCode, page.body.includes('/ledger/statement/file')]).toEqual([200, false])
    expect((await opal.get(`${base}/ledger/statement/file?month=${monthOf(0)}&csv=on`)).statusCode).toBe(403)
  })

  test('of a long ledger show the progress until the answer is there', async () => {
    using reads = holdReads()
    for (const path of [`${base}/ledger/months`, `${base}/ledger/totals?month=${monthOf(1)}`])
      expect((await ada.get(path)).body).toContain(`hx-get="${path}" hx-trigger="every 1s"`)
    reads.release()
    expect((await ended(`${base}/ledger/months`)).body).toContain('data-head="Opening"')
    expect((await ended(`${base}/ledger/totals?month=${monthOf(1)}`)).body).toContain('<dt>Opening</dt>')
  })
})

test('slow statements of one partner do not block those of the operator', async () => {
  const { organizationId } = scene
  const pat = await browserOf(room, { name: 'pat', role: 'partner', organizationId })
  using reads = holdReads()
  const path = `${base}/ledger/statement/file?month=${monthOf(1)}&csv=on`
  const taken = Array.from({ length: 4 }, () => pat.get(path))
  await until('all four are read', async () => reads.count() >= 4)
  const refused = await pat.get(path)
  expect([refused.statusCode, refused.headers['retry-after']]).toEqual([503, '10'])
  const others = Array.from({ length: 4 }, () => ada.get(path))
  await until('those of finance are read', async () => reads.count() >= 8)
  reads.release()
  const answers = await Promise.all([...taken, ...others])
  expect(answers.map(({ statusCode }) => statusCode)).toEqual(Array(8).fill(200))
  expect((await pat.get(path)).statusCode).toBe(200)
})

describe('long-running work', () => {
  test('shows its progress and then its result, to people whose role allows it', async () => {
    using reads = holdReads()
    const sent = await ada.submit(`${base}/ledger/reconcile`, {})
    const work = String(sent.headers.location)
    expect(work).toMatch(/^\/jobs\/[0-9a-f-]{36}$/)
    expect((await ada.get(work)).body).toContain(`hx-get="${work}" hx-trigger="every 1s"`)
    reads.release()
    expect((await ended(work)).body).toContain('<h1>Done</h1>')
    expect((await ada.get('/commands/jobs/work')).body).toContain(`href="${work}"`)
    for (const [role, organizationId, status] of [
      ['partner', scene.organizationId, 403],
      ['viewer', null, 404],
    ] as const) {
      const browser = await browserOf(room, { name: `${role}-1`, role, organizationId })
      expect([role, (await browser.get(work)).statusCode]).toEqual([role, status])
    }
  })

  test('begins once for a form, and not for the same form with other values', async () => {
    const path = `${base}/ledger/reconcile`
    const once = ulid()
    const send = (month: string) => ada.submit(path, { once, month })
    const [first, again] = [await send(monthOf(1)), await send(monthOf(1))]
    expect(first.headers.location).toMatch(/^\/jobs\//)
    expect(again.headers.location).toBe(first.headers.location)
    const changed = await send(monthOf(0))
    expect([changed.statusCode, changed.body]).toEqual([409, expect.stringContaining('Already sent')])
  })

  test('leads back to the last reconciliation', async () => {
    const { body } = await give(ada, '/commands/ledger/reconcile', {})
    expect(body).toContain('<a class="button" href="/#reconciliation">Back</a>')
  })

  test('that never existed has no page', async () => {
    for (const path of ['/jobs/x', '/jobs/%00']) expect((await ada.get(path)).statusCode).toBe(404)
  })
})

describe('the statement with filters', () => {
  test('shows only matching lines, in pages, up to the last one', async () => {
    let path: string | undefined = `${base}/ledger/lines?kind=call&outcome=answered&key=${scene.keyId}`
    let found = 0
    const ids = new Set<string>()
    for (let page = 0; path !== undefined && page < 100; page++) {
      const { body, statusCode } = await ada.get(path)
      expect(statusCode).toBe(200)
      for (const [, id = ''] of body.matchAll(/\/calls\/([0-9A-Z]{26})"/g)) {
        found++
        ids.add(id)
      }
      path = /href="([^"]+cursor=[^"]+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&')
    }
    const { rows } = await room.foundation.pool.query<{ n: number }>(
      `select count(*)::integer as n from ledger_lines
        where ledger = ledger_key($1) and kind = 'call' and outcome = 'answered' and key_id = $2`,
      [scene.organizationId, scene.keyId],
    )
    expect(found).toBeGreaterThan(50)
    expect([found, ids.size]).toEqual([rows[0]?.n, rows[0]?.n])
  })

  test('has only the lines of the days asked for', async () => {
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString()
    const { body } = await ada.get(`${base}/ledger/lines?from=${tomorrow}`)
    expect(body).toContain('No lines match.')
    expect((await ada.get(`${base}/ledger/lines?to=${tomorrow}`)).body).toContain('<th scope="col">Kind')
  })

  test.each([
    ['kind=%00', 422],
    ['key=%00', 422],
    ['from=2026-99-99', 422],
    ['outcome=%27', 422],
    ['cursor=%00', 422],
    ['to=9999-12-31', 200],
    ['cursor=0', 200],
    ['cursor=999999999999999', 200],
  ])('answers %s with %i', async (query, status) => {
    expect((await ada.get(`${base}/ledger/lines?${query}`)).statusCode).toBe(status)
  })
})

describe('a call', () => {
  const call = (): string => `${base}/calls/${scene.requestId}`
  /** The calls in the ledger, in the order of the ledger. */
  const recorded = async () =>
    (await room.foundation.eventLog.read(ledgerStream(scene.organizationId), { max: 2_000 }))
      .map(decodeEvent)
      .flatMap((event) =>
        event.type === 'KeyUsed'
          ? [{ id: event.metadata.request_id ?? '', rule: event.data.free_by?.rule ?? 'charged' }]
          : [],
      )

  test.each([
    ['charged', '1 credit: the address was located (rule ip_lookup.located v1, price book 1).'],
    [
      'ip_lookup.not_located',
      'Free: an address that is not located costs nothing (rule ip_lookup.not_located v1).',
    ],
    ['refusal', 'Free: a call that is refused or fails costs nothing (rule refusal v1).'],
  ])('has one sentence with its cost and the reason: %s', async (wanted, sentence) => {
    const one = (await recorded()).findLast(({ rule }) => rule === wanted)
    const { body } = await ada.get(`${base}/calls/${one?.id}`)
    expect(body).toContain(`<p>${sentence}</p>`)
    expect(body.includes('Refund the call')).toBe(wanted === 'charged')
    expect(/Answered with status 4\d\d: [a-z]/.test(body)).toBe(wanted === 'refusal')
    expect(body.includes('<h2 id="lots">')).toBe(wanted === 'charged')
    expect([figure(body, 'Costs now'), /<dt>Key<\/dt><dd><a href="[^"]+">(\w+)/.exec(body)?.[1]]).toEqual([
      '',
      expect.stringMatching(/^(production|nightly)$/),
    ])
  })

  test('links to the previous and the next call, in the order of the ledger', async () => {
    const ids = (await recorded()).map(({ id }) => id)
    const sides = async (id: string | undefined) => {
      const { body } = await ada.get(`${base}/calls/${id}`)
      return ['Previous', 'Next'].map(
        (side) => new RegExp(`/calls/(\\w+)">${side} call</a>`).exec(body)?.[1] ?? null,
      )
    }
    expect(await sides(ids[0])).toEqual([null, ids[1]])
    expect(await sides(ids.at(-1))).toEqual([ids.at(-2), null])
    for (const i of [1, 7, 40, ids.length - 2])
      expect([i, await sides(ids[i])]).toEqual([i, [ids[i - 1], ids[i + 1]]])
  })

  test('has a receipt once a checkpoint covers it, which proves the call to outsiders', async () => {
    await room.foundation.checkpoints.make()
    expect((await ada.get(call())).body).toContain(`href="${call()}/receipt.json"`)
    const { body, headers } = await ada.get(`${call()}/receipt.json`)
    expect(headers['content-disposition']).toContain(`receipt-${scene.requestId}.json`)
    verifyReceipt(JSON.parse(body))
    expect(() => verifyReceipt(JSON.parse(body.replace('KeyUsed', 'KeyUsee')))).toThrow()
  })

  test('can be refunded while part of its cost is left, and then shows its remaining cost', async () => {
    const refunded = await give(ada, `${base}/credits/refund`, {
      request: scene.requestId,
      reason: 'goodwill',
      reference: 'ticket-4711',
    })
    expect(refunded.body).toContain('<h1>Done</h1>')
    expect(refunded.body).toContain(`, balance ${figure(refunded.body, 'Balance')} credits</p>`)
    await room.caughtUp()
    const { body } = await ada.get(call())
    expect([figure(body, 'Cost, credits'), figure(body, 'Costs now')]).toEqual(['1', '0'])
    const timeline = /<ol class="timeline">.*?<\/ol>/s.exec(body)?.[0].replaceAll(/<[^>]*>/g, ' ')
    expect(timeline).toMatch(/refund of 1 credit: goodwill\s+Reference: ticket-4711\s+By: user:ada/)
    expect(body).not.toContain('Refund the call')
  })
})

describe('prices', () => {
  const approve = '/commands/price/approve'

  const proposed = async (amount: string): Promise<string> => {
    const { proposal } = await proposePriceBook(room.foundation, {
      rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
      effectiveFrom: new Date(Date.now() + 86_400_000).toISOString(),
      reason: '<b>contract</b>',
      actor: 'user:ada',
    })
    return `p${proposal}`
  }

  test('show their cost for each organization by name, and can be approved from there while they are open', async () => {
    const name = await proposed('3.25')
    const costs = async (): Promise<string> => {
      const { headers } = await ada.submit('/commands/price/diff', { from: '1', to: name, month: monthOf(0) })
      return (await ended(String(headers.location))).body
    }
    const link = `href="${approve}?proposal=${name}">Approve ${name}</a>`
    const open = await costs()
    expect(open).toContain('data-head="Organization"><div>Northwind Traders</div>')
    expect(open).toContain(link)
    await withdrawPrices(room.foundation, {
      name: { kind: 'proposal', number: Number(name.slice(1)) },
      reason: 'test',
      actor: 'user:ada',
      twoPerson: true,
    })
    const closed = await costs()
    expect(closed).toContain('Northwind Traders')
    expect(closed).not.toContain(link)
  })

  test('are approved once, by a person other than the proposer', async () => {
    const bob = await browserOf(room, { name: 'bob', role: 'finance' })
    const name = await proposed('3.5')
    const before = await room.foundation.eventLog.head()
    for (const fields of [{ proposal: name }, { proposal: name, confirmed: 'yes' }]) {
      const { statusCode, body } = await ada.submit(approve, fields)
      expect(statusCode).toBe(422)
      expect(body).toContain('Ada proposed it: another person must approve it')
    }
    expect(await room.foundation.eventLog.head()).toBe(before)

    const plan = await bob.submit(approve, { proposal: name })
    expect(plan.body).toContain('ip_lookup.located: 1 credit (ip_lookup, version 1) → 3.5 credits')
    expect(plan.body).toContain('It can be withdrawn until then')
    expect((await give(bob, approve, { proposal: name })).body).toContain('<h1>Done</h1>')
    expect((await pricesAt(room.foundation, Date.now())).upcoming).toMatchObject([
      { proposal: Number(name.slice(1)), approver: 'user:bob', published: { by: 'user:bob' } },
    ])
    expect((await bob.submit(approve, { proposal: name })).body).toContain('is already approved')
  })
})

describe('the form for new prices', () => {
  const path = '/commands/price/propose'
  const rule = 'ip_lookup.located'
  const inMs = (ms: number): string => new Date(Date.now() + ms).toISOString()
  const open = () => ada.get(path)
  const filled = (page: string, fields: Record<string, string>) =>
    ada.post(path, encoded({ ...hiddenIn(page), _csrf: tokenIn(page), ...fields }))
  const proposals = async () => (await pricesAt(room.foundation, Date.now())).open
  const [hourMs, dayMs] = [3_600_000, 86_400_000]

  test('proposes the new price of one rule, and shows the change first', async () => {
    const { inForce } = await pricesAt(room.foundation, Date.now())
    const { body } = await open()
    for (const one of inForce?.rules ?? []) expect(body).toContain(`<option value="${one.rule}"`)
    const plan = await filled(body, { rule, amount: ' 0.50 ', from: inMs(hourMs) })
    expect(plan.body.match(/<p>[a-z_.]+: [^<]*→[^<]*<\/p>/g)).toEqual([
      '<p>ip_lookup.located: 1 credit (ip_lookup, version 1) → 0.5 credits (ip_lookup, version 1).</p>',
    ])
    const done = await ada.post(path, encoded(hiddenIn(plan.body)))
    expect(done.body).toContain('<h1>Done</h1>')
    const proposal = (await proposals()).at(-1)
    expect(proposal?.rules).toEqual(
      inForce?.rules.map((one) => (one.sku === 'ip_lookup' ? { ...one, amount: '0.5' } : one)),
    )
    const shown = (await ada.get(`/commands/price/show?name=p${proposal?.proposal}`)).body
    const [changes = '', unchanged = ''] = shown.split('<h2>Unchanged rules</h2>')
    expect(changes).toContain('1 → 0.5')
    expect(changes).not.toContain('profile.cached')
    expect(unchanged.split('<tr').length - 2).toBe(Number(inForce?.rules.length) - 1)
    expect(unchanged).toContain('profile.cached')
    expect(unchanged).not.toContain('ip_lookup.located')
  })

  test('accepts a JSON document instead', async () => {
    const document = '[{"rule":"ip_lookup.located","amount":"0.25"},{"rule":"profile.cached","amount":"1"}]'
    const plan = await filled((await open()).body, { file: document, from: inMs(hourMs) })
    expect(plan.body).toContain('→ 0.25 credits (ip_lookup, version 1)')
    expect(plan.body).toContain('profile.cached: ')
  })

  const either = 'give either a JSON document, or a rule and its new price'
  test.each([
    ['a wrong amount', { rule, amount: '1e3' }, 'is not a decimal number of credits'],
    ['no new price', {}, either],
    ['a rule without its price', { rule }, either],
    ['a price without its rule', { amount: '2' }, either],
    ['a document together with a price', { file: '[]', rule, amount: '2' }, either],
    ['only the current price', { rule, amount: '1' }, 'already has exactly these rules'],
    ['a rule that does not exist', { rule: 'sold', amount: '1' }, '"sold" is not'],
    ['a free rule', { rule: 'whoami', amount: '1' }, 'rule whoami has no SKU'],
    ['a date in the past', { rule, amount: '3', from: '2025-01-01T00:00' }, 'in the future'],
    ['text that is not JSON', { file: '{' }, 'It is not JSON'],
  ])('refuses %s, and keeps the values', async (_, fields, sentence) => {
    const before = await room.foundation.eventLog.head()
    const typed = { from: inMs(hourMs), ...fields, reason: 'the next contract' }
    const { statusCode, body } = await filled((await open()).body, typed)
    expect([statusCode, unescaped(body).toLowerCase()]).toEqual([
      422,
      expect.stringContaining(sentence.toLowerCase()),
    ])
    expect(body).toContain('value="the next contract"')
    if ('amount' in fields) expect(body).toContain(`name="amount" value="${fields.amount}"`)
    expect(await room.foundation.eventLog.head()).toBe(before)
  })

  test('refuses a document about another price book than the one that will be in force, before and after the plan', async () => {
    const { body } = await open()
    const next = (await pricesAt(room.foundation, Date.now())).upcoming.at(-1)
    expect(next?.effective_from).toBeDefined()
    const changesOf = (version: number) => ({
      file: JSON.stringify({ price_book_version: version, rules: [{ rule, amount: '0.1' }] }),
      from: inMs(3 * dayMs),
    })
    const early = await filled(body, changesOf(1))
    expect(early.statusCode).toBe(422)
    expect(early.body).toContain('These are changes to price book 1, but price book 2 will be in force at')
    const plan = await filled(body, changesOf(2))
    expect(plan.body).toContain('ip_lookup.located: 3.5 credits (ip_lookup, version 1) → 0.1 credits')

    await withdrawPrices(room.foundation, {
      name: { kind: 'book', number: 2 },
      reason: 'test',
      actor: 'user:ada',
      twoPerson: true,
    })
    const before = await room.foundation.eventLog.head()
    const late = await ada.post(path, encoded(hiddenIn(plan.body)))
    expect(late.statusCode).toBe(422)
    expect(late.body).toContain('These are changes to price book 2, but price book 1 will be in force at')
    expect(await room.foundation.eventLog.head()).toBe(before)
  })
})
