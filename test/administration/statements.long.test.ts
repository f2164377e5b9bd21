/** Monthly statements for any history of a ledger, and what becomes final when a month is closed. */
import { randomUUID } from 'node:crypto'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import fc from 'fast-check'
import pg from 'pg'
import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { balanceAt } from '../../src/administration/credits/queries.ts'
import { expiryOf } from '../../src/administration/input.ts'
import { type ClosedMonth, closeMonth } from '../../src/administration/months/close-month.ts'
import { monthStatement, type Reading } from '../../src/administration/months/statements.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { closingGapMax } from '../../src/billing/months.ts'
import { csv, jsonLines, type StatementForm } from '../../src/billing/statement-file.ts'
import { chain, genesisDigest } from '../../src/event-log/hash-chain.ts'
import type { EventLog, RecordedEvent } from '../../src/event-log/port.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { CommandRefused, type Instruction } from '../../src/ledger/command.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { book, lookUp, org, stream } from '../support/ledger-commands.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'

const seed = 20_261_122
const ms = (instant: string): number => Date.parse(instant)

let log: MemoryEventLog
let eventLog: EventLog
let ledger: Ledger
let nowMs: number
let keys: number

beforeEach(() => open('2026-01-10T00:00:00.000Z'))

const open = async (at: string): Promise<void> => {
  log = createMemoryEventLog()
  eventLog = log.client('one')
  nowMs = ms(at)
  keys = 0
  ledger = createLedger({
    eventLog,
    snapshot: async () => null,
    logger: pino({ level: 'silent' }),
    clock: { now: () => nowMs },
  })
  await submit(nowMs, { kind: 'register', name: '=Example, "quoted"', overdraftLimit: parseCredits('3') })
}

const submit = (atMs: number, instruction: Instruction) =>
  ledger.submit(org, { key: `key${keys++}`, requestId: `req${keys}`, atMs, actor: 'test', ...instruction })

const grant = (atMs: number, amount: string, expiresAt: string | null = null, reason = 'test') =>
  submit(atMs, { kind: 'grant', amount: parseCredits(amount), priority: 100, expiresAt, reason })

const call = (atMs: number, located = true) => submit(atMs, { kind: 'record', book, call: lookUp(located) })

const adjust = (atMs: number, amount: string, reason = 'test') =>
  submit(atMs, { kind: 'adjust', adjusts: null, amount: parseCredits(amount), reason, rerateRun: null })

const close = (month: string, reading: Reading = { eventLog }): Promise<ClosedMonth | null> =>
  closeMonth({ ledger, ...reading }, { organizationId: org, month, actor: 'test', nowMs })

const statement = async (
  month: string,
  form: StatementForm = jsonLines,
  from: EventLog | Reading = eventLog,
) => {
  let text = ''
  const found = await monthStatement('eventLog' in from ? from : { eventLog: from }, {
    organizationId: org,
    month,
    nowMs,
    file: {
      form,
      write: async (more) => {
        text += more
      },
    },
  })
  return { ...found, text }
}

type Line = { kind: string; balance: string; amount?: string; corrects_month?: string }
const linesOf = (text: string): Line[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line)

/** A step in a history: the operation, its delay after the previous step, and how much earlier it was effective. */
const step = fc.record({
  what: fc.constantFrom('call', 'call', 'free', 'grant', 'expiring', 'give', 'take', 'override', 'close'),
  amount: fc.integer({ min: 1, max: 6_000_000 }).map((micro) => formatCredits(BigInt(micro))),
  daysLater: fc.integer({ min: 0, max: 16 }),
  daysEarlier: fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, fc.integer({ min: 0, max: 40 })),
})
type Step = typeof step extends fc.Arbitrary<infer One> ? One : never
const day = 86_400_000

const perform = async (
  { what, amount, daysLater, daysEarlier }: Step,
  reading: Reading = { eventLog },
): Promise<void> => {
  nowMs += daysLater * day
  const atMs = nowMs - daysEarlier * day
  if (what === 'call' || what === 'free') await call(atMs, what === 'call')
  if (what === 'grant') await grant(atMs, amount)
  if (what === 'expiring') await grant(atMs, amount, new Date(nowMs + 20 * day).toISOString())
  if (what === 'give') await adjust(atMs, amount)
  if (what === 'take')
    await adjust(atMs, `-${amount}`).catch((error: unknown) => {
      // Operations are limited to the available credits.
      if (!(error instanceof CommandRefused)) throw error
    })
  if (what === 'override')
    await submit(atMs, {
      kind: 'override_price',
      sku: 'ip_lookup',
      amount: parseCredits(amount),
      effectiveFrom: new Date(nowMs).toISOString(),
    })
  if (what === 'close') await closeAll(reading)
}

/** Closes every month that has ended. */
const closeAll = async (reading: Reading): Promise<void> => {
  for (const month of monthsUntilNow()) await close(month, reading).catch(() => null)
}

/** Calls can be effective forty days before the ledger was opened. */
const monthsUntilNow = (): string[] => {
  const months: string[] = []
  for (let at = new Date('2025-11-01T00:00:00.000Z'); at.getTime() <= nowMs; ) {
    months.push(at.toISOString().slice(0, 7))
    at = new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1))
  }
  return months
}

describe('any history', () => {
  test('opening plus movements is the closing balance, which is the next opening balance; closed files never change', async () => {
    let closings = 0
    let corrections = 0
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 50, size: 'max' }), async (steps) => {
        await open('2026-01-10T00:00:00.000Z')
        const closedFiles = new Map<string, string>()
        for (const one of steps) {
          await perform(one)
          if (one.what !== 'close') continue
          for (const month of monthsUntilNow()) {
            const { closing, text } = await statement(month)
            if (closing?.month === month && !closedFiles.has(month)) closedFiles.set(month, text)
          }
        }
        closings += closedFiles.size
        let opening = 0n
        let movements = 0
        for (const month of monthsUntilNow()) {
          const { text, summary } = await statement(month)
          expect(summary.opening).toBe(opening)
          let balance = opening
          for (const line of linesOf(text).slice(1, -1)) {
            balance += parseCredits(line.amount ?? '')
            expect(line.balance).toBe(formatCredits(balance))
            movements++
          }
          expect(summary.closing).toBe(balance)
          const sum = summary.movements.reduce((all, { amount }) => all + amount, 0n)
          expect(opening + sum).toBe(balance)
          corrections += summary.corrections.length
          opening = balance
          if (closedFiles.has(month)) expect(text).toBe(closedFiles.get(month))
        }
        // Every event that moves credits is on exactly one statement, and their sum equals the lots.
        const account = await ledger.account(org)
        expect(opening).toBe(account.lots.reduce((sum, { remaining }) => sum + remaining, -account.overdrawn))
        const counted = log
          .eventsOf(stream)
          .filter(({ type }) => /^(KeyUsed|CreditGr|CreditAd|CreditEx)/.test(type))
        expect(movements).toBe(counted.length)
        expect((await verifyLedger(eventLog, org)).fault).toBeNull()
      }),
      { seed, numRuns: 25 },
    )
    expect({ closings, corrections }).toEqual({
      closings: expect.toSatisfy((n) => n > 20),
      corrections: expect.toSatisfy((n) => n > 10),
    })
  })
})

describe('with a database', () => {
  let database: TestDatabase
  let tables: pg.Pool
  beforeAll(async () => {
    database = await testDatabase()
    tables = new pg.Pool({ connectionString: database.url })
  })
  afterAll(async () => {
    await tables.end()
    await database.drop()
  })
  beforeEach(() => tables.query('truncate closed_month_files'))

  const closings = () => log.eventsOf(stream).filter(({ type }) => type === 'MonthClosed')
  type Rows = readonly { readonly position: string }[]
  /** Reads the projection's rows and the places of closings, after `rows` has changed the rows. */
  const reading = (rows: (rows: Rows) => Rows = (all) => all) => {
    let read = 0
    const counting: EventLog = {
      ...eventLog,
      read: async (...asked) => {
        const events = await eventLog.read(...asked)
        read += events.length
        return events
      },
    }
    const query = async (text: string, values: unknown[]): Promise<unknown> =>
      text.includes('audit_entries')
        ? {
            rows: rows(
              closings()
                .toReversed()
                .map(({ position }) => ({ position: String(position) })),
            ),
          }
        : tables.query(text, values)
    const pool = { query } as unknown as pg.Pool
    return { eventLog: counting, pool, count: () => read }
  }
  const stored = async (): Promise<string> => {
    const { rows } = await tables.query<{ lines: Buffer }>(
      'select lines from closed_month_files order by month, part',
    )
    return rows.map(({ lines }) => zstdDecompressSync(lines).toString()).join('')
  }
  const rows = async (): Promise<unknown> => (await tables.query('select * from closed_month_files')).rows
  const add = (lines: Buffer): Promise<unknown> =>
    tables.query(`insert into closed_month_files values ('${org}', '2026-01', 1, $1)`, [lines])
  const rewrite = async (change: (lines: string) => string): Promise<void> => {
    const { rows } = await tables.query<{ month: string; part: number; lines: Buffer }>(
      'select month, part, lines from closed_month_files',
    )
    for (const { month, part, lines } of rows)
      await tables.query('update closed_month_files set lines = $3 where month = $1 and part = $2', [
        month,
        part,
        zstdCompressSync(change(zstdDecompressSync(lines).toString())),
      ])
  }
  /** Two closed months and an open one, each with lines. */
  const history = async (calls = 20): Promise<void> => {
    await grant(nowMs, '1000', '2026-02-20T12:00:00.000Z')
    for (let n = 0; n < calls; n++) await call(nowMs, n % 3 > 0)
    for (const [month, at] of [
      ['2026-01', '2026-02-05T00:00:00.000Z'],
      ['2026-02', '2026-03-05T00:00:00.000Z'],
    ] as const) {
      nowMs = ms(at)
      for (let n = 0; n < 4; n++) await call(nowMs)
      await close(month, reading())
    }
  }

  test('every statement equals one computed from the first event, for any history and closings', async () => {
    let fewer = 0
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 40, size: 'max' }), async (steps) => {
        await open('2026-01-10T00:00:00.000Z')
        await tables.query('truncate closed_month_files')
        for (const [n, one] of steps.entries()) {
          await perform(one, reading())
          if (n % 4 > 0) continue
          const months = monthsUntilNow()
          const month = months[(n * 7) % months.length] ?? ''
          for (const form of [jsonLines, csv]) {
            const onward = reading((rows) => (n % 8 === 0 ? rows : rows.slice(1)))
            const found = await statement(month, form, onward)
            const {
              digest: _,
              months: __,
              ...whole
            } = { digest: '', months: null, ...(await statement(month, form)) }
            expect(found.text).toBe(whole.text)
            expect(found.summary).toEqual(whole.summary)
            expect(found.closing).toEqual(whole.closing)
            if (onward.count() < log.eventsOf(stream).length) fewer++
          }
        }
        expect((await verifyLedger(eventLog, org)).fault).toBeNull()
      }),
      { seed, numRuns: 25 },
    )
    expect(fewer).toBeGreaterThan(50)
  })

  test('closing a month, and reading the open one, start at the place that the previous closing recorded', async () => {
    await history(400)
    const february = closings()[1]
    expect(JSON.parse(february?.data ?? '').totals).toMatchObject({ charged: '-4', expired: /^-/ })
    for (const month of ['2026-02', '2026-03']) {
      const onward = reading()
      await statement(month, csv, onward)
      expect(onward.count()).toBeLessThan(60)
    }
    nowMs = ms('2026-04-05T00:00:00.000Z')
    const onward = reading()
    expect(await close('2026-03', onward)).toMatchObject({ already: false, closed: { month: '2026-03' } })
    expect(onward.count()).toBeLessThan(100)
    // A full read from the first event agrees, because a different file would be refused.
    expect((await statement('2026-03')).closing?.month).toBe('2026-03')
  })

  test('a closed month is served from its stored file, without reading the ledger', async () => {
    // Enough calls for a file with more than one part.
    await history(4_000)
    const right = (await statement('2026-01')).text + (await statement('2026-02')).text
    expect(await stored()).toBe(right)
    expect((await tables.query('select from closed_month_files')).rowCount).toBeGreaterThan(2)
    const onward = reading()
    const { text, summary, head } = await statement('2026-02', jsonLines, onward)
    expect({ text, summary, head }).toEqual(
      (({ text, summary, head }) => ({ text, summary, head }))(await statement('2026-02')),
    )
    expect(onward.count()).toBe(1)
  })

  test.each<[string, () => Promise<unknown>]>([
    ['other amounts', () => rewrite((lines) => lines.replaceAll('"amount":"-1"', '"amount":"-2"'))],
    ['cut off', () => rewrite((lines) => lines.slice(0, 300))],
    ['empty', () => rewrite(() => '')],
    ['one part more', () => add(zstdCompressSync('more'))],
    ['a part that is too long', () => add(zstdCompressSync(Buffer.alloc(100_000_000)))],
    ['a part that is not compressed', () => add(Buffer.from('more'))],
    ['missing', () => tables.query('delete from closed_month_files')],
  ])('a wrong or missing stored file is replaced and never served: %s', async (_, change) => {
    await history()
    const right = await stored()
    const before = await rows()
    await change()
    expect(await rows()).not.toEqual(before)
    expect((await statement('2026-01', jsonLines, reading())).text).toBe((await statement('2026-01')).text)
    expect((await statement('2026-02', jsonLines, reading())).text).toBe((await statement('2026-02')).text)
    expect(await stored()).toBe(right)
  })

  test.each<[string, string, string]>([
    ['a part is changed', "update closed_month_files set lines = 'more' where part > 0", 'first'],
    ['a part is removed', 'delete from closed_month_files where part > 0', 'first'],
    ['all parts are removed', 'delete from closed_month_files', 'none'],
  ])('a stored file that changes after its check is not written further: %s', async (_, change, written) => {
    await history(4_000)
    const { rows: parts } = await tables.query<{ lines: Buffer }>(
      "select lines from closed_month_files where month = '2026-01' order by part",
    )
    expect(parts.length).toBeGreaterThan(1)
    const { pool, ...from } = reading()
    let firstParts = 0
    const query = async (text: string, values: unknown[]): Promise<unknown> => {
      if (text.includes('closed_month_files') && values[2] === 0) firstParts++
      if (firstParts === 2) await tables.query(change)
      return pool.query(text, values)
    }
    let text = ''
    const write = async (more: string | Buffer): Promise<void> => {
      text += more
    }
    const asked = { organizationId: org, month: '2026-01', nowMs, file: { form: jsonLines, write } }
    await expect(monthStatement({ ...from, pool: { query } as unknown as pg.Pool }, asked)).rejects.toThrow(
      'the stored statement of 2026-01 changed while it was being read: try again',
    )
    const [first] = parts
    expect(text).toBe(
      written === 'none' || first === undefined ? '' : String(zstdDecompressSync(first.lines)),
    )
  })

  test('a file that does not match the ledger is not served, whether it is stored or not', async () => {
    await history()
    const cheaper = {
      ...reading(),
      eventLog: {
        ...eventLog,
        read: async (...asked: Parameters<EventLog['read']>) =>
          (await eventLog.read(...asked)).map((event) =>
            event.revision === 1 ? { ...event, data: event.data.replace('"test"', '"gift"') } : event,
          ),
      },
    }
    // The stored file has the closing's digest.
    expect((await statement('2026-01', jsonLines, cheaper)).text).toContain('"reason":"test"')
    await tables.query('delete from closed_month_files')
    for (let attempt = 0; attempt < 2; attempt++)
      await expect(statement('2026-01', jsonLines, cheaper)).rejects.toThrow(
        'differs from the statement that was closed',
      )
  })

  test('rows that do not match a closing in the ledger are ignored', async () => {
    await history()
    await call(nowMs)
    const elsewhere = log.eventsOf(stream).find(({ type }) => type === 'KeyUsed')?.position
    const other = 'org_01K9YYYYYYYYYYYYYYYYYYYYYY'
    const closed = JSON.parse((closings()[1]?.data ?? '').replace(/"closing":".*?"/, '"closing":"7"'))
    await ledger.submit(other, {
      key: 'r',
      atMs: nowMs,
      actor: 'test',
      kind: 'register',
      name: 'x',
      overdraftLimit: 0n,
    })
    await ledger.submit(other, { key: 'c', atMs: nowMs, actor: 'test', kind: 'close_month', closed })
    const others = log.eventsOf(ledgerStream(other)).at(-1)?.position
    for (const position of ['999999', String(elsewhere), String(others)]) {
      const misled = reading(() => [{ position }])
      for (const month of ['2026-01', '2026-02', '2026-03'])
        expect((await statement(month, jsonLines, misled)).text).toBe((await statement(month)).text)
    }
  })

  test.each([
    [
      '"closing":"',
      '"closing":"7',
      /closes 2026-02 at a balance of 7\d+ credits, but its events add up to \d+/,
    ],
    [
      '"next":{"revision":',
      '"next":{"revision":1',
      /contains a wrong start for the month after 2026-02, which begins at revision \d+/,
    ],
    ['"prices":[', '"prices":[1', /contains a wrong start for the month after 2026-02/],
  ])(
    'a changed closing, even with every later digest recomputed, is named by verify: %s',
    async (from, to, fault) => {
      await history()
      // This call counts in March, although it comes before the closing of February in the ledger.
      await call(nowMs)
      expect((await verifyLedger(eventLog, org)).fault).toBeNull()
      const changedAt = closings()[1]?.revision ?? 0
      let previous = genesisDigest
      const events = log.eventsOf(stream).map((event) => {
        const data = event.revision === changedAt ? event.data.replace(from, to) : event.data
        const [, open = '', recordedAt = ''] = /^(.*),"recorded_at":"([^"]+)",/.exec(event.metadata) ?? []
        const place = { stream, revision: event.revision, previous }
        const fresh = chain({ ...event, data, metadata: `${open}}` }, place, recordedAt)
        previous = fresh.digest
        return { ...event, ...fresh.event }
      })
      const rechained = {
        read: async (_: string, { from: first = 0, max }: { from?: number; max: number }) =>
          events.slice(first, first + max),
        lastRevision: async () => events.length - 1,
      }
      expect((await verifyLedger(rechained, org)).fault).toMatchObject({
        revision: changedAt,
        type: 'MonthClosed',
        fault: expect.stringMatching(fault),
      })
    },
  )
})

describe('a closed month', () => {
  const history = async (): Promise<void> => {
    await grant(ms('2026-01-11T00:00:00.000Z'), '10', '2026-01-20T12:00:00.000Z')
    await grant(ms('2026-01-12T00:00:00.000Z'), '5')
    await call(ms('2026-01-13T00:00:00.000Z'))
    await call(ms('2026-01-13T00:00:01.000Z'), false)
    nowMs = ms('2026-02-03T00:00:00.000Z')
    await call(nowMs)
  }

  test('has its expired credits written off at their expiry, and records the totals', async () => {
    await history()
    expect(await close('2026-01')).toMatchObject({
      already: false,
      expired: 1,
      closed: {
        month: '2026-01',
        totals: {
          opening: '0',
          granted: '15',
          charged: '-1',
          adjusted: '0',
          expired: '-9',
          closing: '5',
          calls: 2,
        },
      },
    })
    const { text } = await statement('2026-01')
    expect(linesOf(text).find(({ kind }) => kind === 'expiry')).toMatchObject({
      effective_at: '2026-01-20T12:00:00.000Z',
      amount: '-9',
    })
    expect((await statement('2026-02')).summary.opening).toBe(parseCredits('5'))
  })

  test('includes credits that expire on its last day, and closes with the balance at the next midnight', async () => {
    await open('2025-12-20T00:00:00.000Z')
    await grant(nowMs, '10', expiryOf('expires-at', '2025-12-31'))
    nowMs = ms('2025-12-31T23:59:59.998Z')
    // The expiring credits still pay for this call.
    await call(nowMs)
    nowMs = ms('2026-01-02T00:00:00.000Z')
    expect(await close('2025-12')).toMatchObject({
      expired: 1,
      closed: { totals: { granted: '10', charged: '-1', expired: '-9', closing: '0' } },
    })
    expect(linesOf((await statement('2025-12')).text).find(({ kind }) => kind === 'expiry')).toMatchObject({
      effective_at: '2025-12-31T23:59:59.999Z',
      amount: '-9',
    })
    expect((await statement('2026-01')).summary).toMatchObject({ opening: 0n, movements: [] })
    for (const at of ['2025-12-31T23:59:59.999Z', '2026-01-01T00:00:00.000Z'])
      expect(
        await balanceAt({ eventLog }, { organizationId: org, asOf: { atMs: ms(at), knownAtMs: nowMs } }),
      ).toMatchObject({ balance: 0n })
    const fault = (await verifyLedger(eventLog, org)).fault
    expect(fault).toBeNull()
  })

  test('writes off again the credits that a late refund returned to an expired lot', async () => {
    const expiresAt = '2026-01-20T12:00:00.000Z'
    await grant(nowMs, '10', expiresAt)
    const [opened] = log.eventsOf(stream).filter(({ type }) => type === 'CreditGranted')
    const grantId = opened?.id ?? ''
    await call(nowMs)
    const [charge] = log.eventsOf(stream).filter(({ type }) => type === 'CreditCharged')
    nowMs = ms('2026-01-20T12:00:01.000Z')
    await submit(ms(expiresAt), { kind: 'expire', grantId })
    const part = { grant_id: grantId, priority: 100, expires_at: expiresAt, revision: 1, granted: '10' }
    await submit(ms(expiresAt) - 1, {
      kind: 'adjust',
      adjusts: charge?.id ?? '',
      amount: parseCredits('1'),
      reason: 'late',
      rerateRun: null,
      correction: 'refund',
      into: [{ ...part, amount: '1' }],
    })
    nowMs = ms('2026-02-03T00:00:00.000Z')
    expect(await close('2026-01')).toMatchObject({
      expired: 1,
      closed: { totals: { adjusted: '1', expired: '-10', closing: '0' } },
    })
  })

  test('is closed once: a second request writes nothing', async () => {
    await history()
    const first = await close('2026-01')
    const held = log.eventsOf(stream).length
    expect(await close('2026-01')).toMatchObject({ already: true, expired: 0, closed: first?.closed })
    expect(log.eventsOf(stream)).toHaveLength(held)
  })

  test('two concurrent requests write one closing', async () => {
    await history()
    const both = await Promise.all([close('2026-01'), close('2026-01')])
    expect(both.map((one) => one?.closed.digest)).toEqual(Array(2).fill(both[0]?.closed.digest))
    expect(log.eventsOf(stream).filter(({ type }) => type === 'MonthClosed')).toHaveLength(1)
  })

  test('has the same bytes when late events arrive, which are corrections in the open month', async () => {
    await history()
    await close('2026-01')
    const before = { json: (await statement('2026-01')).text, csv: (await statement('2026-01', csv)).text }
    const late = await adjust(ms('2026-01-15T00:00:00.000Z'), '2.5', 'forgotten')
    expect((await statement('2026-01')).text).toBe(before.json)
    expect((await statement('2026-01', csv)).text).toBe(before.csv)
    const { text, summary } = await statement('2026-02')
    expect(linesOf(text)).toContainEqual(
      expect.objectContaining({
        kind: 'adjustment',
        amount: '2.5',
        corrects_month: '2026-01',
        revision: late.revision,
      }),
    )
    expect(summary.corrections).toEqual([{ month: '2026-01', count: 1, amount: parseCredits('2.5') }])
  })

  test.each([true, false])(
    'is named by a later refund of one of its calls, closed (%s) or not, with the reference',
    async (isClosed) => {
      await history()
      if (isClosed) await close('2026-01')
      const back = { kind: 'adjust', correction: 'refund', amount: 500_000n, reason: 'wrong' } as const
      for (const day of ['01-20', '02-01'])
        await submit(ms('2026-02-03T00:00:00.000Z'), {
          ...back,
          adjusts: '00000000-0000-5000-8000-000000000000',
          rerateRun: null,
          reference: `CRN ${day}`,
          chargedAt: `2026-${day}T12:00:00.000Z`,
        })
      const { text, summary } = await statement('2026-02')
      const refunds = linesOf(text).filter(({ kind }) => kind === 'refund')
      expect(refunds).toMatchObject([{ reference: 'CRN 01-20' }, { reference: 'CRN 02-01' }])
      expect(refunds.map(({ corrects_month }) => corrects_month)).toEqual(['2026-01', undefined])
      expect(summary.corrections).toEqual([{ month: '2026-01', count: 1, amount: 500_000n }])
      expect((await statement('2026-02', csv)).text).toMatch(/CRN 01-20,wrong,test,2026-01\r\n/)
    },
  )

  test('cannot be closed too early, before an earlier month, or if nothing counts in it', async () => {
    await history()
    await grant(ms('2025-12-30T00:00:00.000Z'), '1')
    await expect(close('2026-01')).rejects.toThrow('2025-12 of org_01K9ZZZZZZZZZZZZZZZZZZZZZZ is open')
    await expect(close('2026-02')).rejects.toThrow('2026-02 can be closed from 2026-03-01T00:15:00.000Z on')
    expect(await close('2025-11')).toBeNull()
    nowMs = ms('2026-01-01T00:14:59.999Z')
    await expect(close('2025-12')).rejects.toThrow('can be closed from 2026-01-01T00:15:00.000Z')
  })

  test('with a changed event is refused, and the error names the event', async () => {
    await history()
    await close('2026-01')
    const changed = (change: (event: RecordedEvent) => RecordedEvent): EventLog => ({
      ...eventLog,
      read: async (...asked) => (await eventLog.read(...asked)).map(change),
    })
    const cheaper = changed((event) =>
      event.revision === 2 ? { ...event, data: event.data.replace('"amount":"5"', '"amount":"6"') } : event,
    )
    await expect(statement('2026-01', jsonLines, cheaper)).rejects.toThrow(
      /^the statement of 2026-01 of org_\w+ differs from the statement that was closed: .* revision 2, event [0-9a-f-]{36} \(CreditGranted\)/,
    )
    // A reason does not change any amount, but it is on the statement.
    const otherwise = changed((event) =>
      event.revision === 2 ? { ...event, data: event.data.replace('test', 'gift') } : event,
    )
    await expect(statement('2026-01', csv, otherwise)).rejects.toThrow(
      'differs from the statement that was closed',
    )
  })

  test('an event between a closing and the last event that it counted is a correction', async () => {
    await history()
    const closed = {
      month: '2026-01',
      through_revision: 0,
      totals: {
        opening: '0',
        granted: '0',
        charged: '0',
        adjusted: '0',
        expired: '0',
        closing: '0',
        calls: 0,
      },
      digest: 'd'.repeat(43),
      next: { revision: 0, prices: [] },
    }
    await ledger.submit(org, { key: 'far', atMs: nowMs, actor: 'test', kind: 'close_month', closed })
    // These lines are corrections although they come before the closing.
    const { text } = await statement('2026-02')
    expect(linesOf(text).filter(({ corrects_month }) => corrects_month === '2026-01')).toHaveLength(4)
  })
})

describe('a file', () => {
  test('for an open month states its end so far; a call with two prices has a line for each', async () => {
    await grant(ms('2026-01-11T00:00:00.000Z'), '10')
    await submit(ms('2026-01-12T00:00:00.000Z'), {
      kind: 'override_price',
      sku: 'company_data',
      amount: parseCredits('0.5'),
      effectiveFrom: '2026-01-12T00:00:00.000Z',
    })
    await submit(ms('2026-01-13T00:00:00.000Z'), {
      kind: 'record',
      book,
      call: {
        keyId: 'K9abcdefghijklmn',
        capability: 'email_validation',
        outcome: 'answered',
        facts: {
          kind: 'email_validation',
          status: 'valid',
          sub_status: 'ok',
          decision_row: 'valid',
          company_status: 'found',
          domain: 'example.com',
          address_hmac: 'A'.repeat(43),
        } as never,
      },
    })
    const { text } = await statement('2026-01')
    const lines = linesOf(text)
    expect(lines.filter(({ kind }) => kind === 'charge')).toEqual([
      expect.objectContaining({ sku: 'email_validation', amount: '-1', calls: 1, balance: '9' }),
      expect.objectContaining({
        sku: 'company_data',
        amount: '-0.5',
        calls: 0,
        balance: '8.5',
        override: log.eventsOf(stream)[2]?.id,
      }),
    ])
    expect(lines.at(-1)).toMatchObject({ kind: 'closing', open_as_of_revision: 4, balance: '8.5' })
  })

  test("an own price equal to the book's is named on its own lines, but not on others with the same amount", async () => {
    await grant(ms('2026-01-11T00:00:00.000Z'), '10')
    const own = (effectiveFrom: string) =>
      submit(ms(effectiveFrom), {
        kind: 'override_price',
        sku: 'ip_lookup',
        amount: parseCredits('1'),
        effectiveFrom,
      })
    await call(ms('2026-01-12T00:00:00.000Z'))
    await own('2026-01-13T00:00:00.000Z')
    await call(ms('2026-01-14T00:00:00.000Z'))
    await own('2026-01-15T00:00:00.000Z')
    await call(ms('2026-01-16T00:00:00.000Z'))
    await submit(ms('2026-01-17T00:00:00.000Z'), {
      kind: 'withdraw_override',
      overrideId: randomUUID(),
      overrideRevision: 7,
      sku: 'ip_lookup',
      reason: 'test',
    })
    await call(ms('2026-01-18T00:00:00.000Z'))
    const set = log.eventsOf(stream).filter(({ type }) => type === 'PriceOverrideSet')
    const { text, summary } = await statement('2026-01')
    const named = linesOf(text).filter(({ kind }) => kind === 'charge')
    expect(named.map((line) => Reflect.get(line, 'override'))).toEqual([
      undefined,
      set[0]?.id,
      set[1]?.id,
      set[0]?.id,
    ])
    expect(summary.charges.map(({ override, count }) => [override, count])).toEqual([
      [false, 1],
      [true, 3],
    ])
    const rows = (await statement('2026-01', csv)).text
      .split('\r\n')
      .filter((row) => row.includes(',charge,'))
    expect(rows.map((row) => row.split(',')[14])).toEqual(['', set[0]?.id, set[1]?.id, set[0]?.id])
  })

  test('CSV: texts are not formulas, quotes and commas are quoted, amounts stay numbers', async () => {
    const hostile = ['=HYPERLINK("http://x","y")', '+1', '-1', '@SUM(A1)', '＝1', 'a, "b"', "it's"]
    for (const reason of hostile) await grant(ms('2026-01-11T00:00:00.000Z'), '1', null, reason)
    await adjust(ms('2026-01-11T00:00:00.000Z'), '-2', '-2')
    const { text } = await statement('2026-01', csv)
    const [head = '', ...rows] = text.trimEnd().split('\r\n')
    const reasonAt = head.split(',').indexOf('reason')
    const amountAt = head.split(',').indexOf('amount')
    expect(reasonAt).toBeGreaterThan(amountAt)
    const reasons = rows.slice(1, -1).map((row) => cellsOf(row)[reasonAt])
    expect(reasons).toEqual([
      '\'=HYPERLINK("http://x","y")',
      "'+1",
      "'-1",
      "'@SUM(A1)",
      "'＝1",
      'a, "b"',
      "it's",
      "'-2",
    ])
    expect(rows.at(-2)?.split(',')[amountAt]).toBe('-2')
    for (const row of rows) expect(cellsOf(row)).toHaveLength(head.split(',').length)
  })
})

/** The cells of an RFC 4180 row. */
const cellsOf = (row: string): string[] =>
  [...`,${row}`.matchAll(/,(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(([, quoted, plain]) =>
    quoted === undefined ? (plain ?? '') : quoted.replaceAll('""', '"'),
  )

test('a month is closed although many events are recorded just before the closing', async () => {
  await grant(ms('2026-01-11T00:00:00.000Z'), '10')
  await call(ms('2026-01-12T00:00:00.000Z'))
  nowMs = ms('2026-02-02T00:00:00.000Z')
  let closings = 0
  const busy: Ledger = {
    ...ledger,
    submit: async (organizationId, command) => {
      if (command.kind === 'close_month' && ++closings === 1)
        await Promise.all(Array.from({ length: closingGapMax }, () => call(nowMs, false)))
      return ledger.submit(organizationId, command)
    },
  }
  const done = await closeMonth(
    { ledger: busy, eventLog },
    { organizationId: org, month: '2026-01', actor: 'test', nowMs },
  )
  expect([closings, done?.already, done?.closed.totals.calls]).toEqual([2, false, 1])
  expect(done?.closed.through_revision).toBeGreaterThanOrEqual(closingGapMax)
})
