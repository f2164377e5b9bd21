import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { createRequestIds } from '../../src/call/request-id.ts'
import { chain, digestAfter } from '../../src/event-log/hash-chain.ts'
import { decodeLedgerEvent } from '../../src/event-log/ledger-event.ts'
import type { NewEvent, RecordedEvent } from '../../src/event-log/port.ts'
import { packSegment, type Segment } from '../../src/event-log/postgres/segment.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { evolve, newAccount } from '../../src/ledger/account.ts'
import {
  type Decision,
  grantCredits,
  isRefusal,
  recordCall,
  registerOrganization,
} from '../../src/ledger/decide.ts'

/**
 * Writes ledgers of any length in bulk, with the service's own functions for deciding, encoding and chaining. The result looks as
 * if the calls had been made, but takes minutes instead of hours.
 */

const eventsPerWrite = 20_000
/** The events of one append to a busy ledger: 35 calls and their charges. */
const eventsPerAppend = 70
/** The time between calls. With it, a million calls are spread over three days. */
const callEveryMs = 250
const firstCallAtMs = Date.parse('2026-01-01T00:00:00.000Z')
const credits = parseCredits('1000000000')

type Ledgers = readonly { readonly organizationId: string; readonly events: number }[]

/** Writes ledgers of about `events` events each, one after the other, for new organizations. Resolves with the number of events. */
export const writeHistory = (url: string, ledgers: Ledgers): Promise<number> =>
  written(url, async (client) => {
    let count = 0
    for (const { organizationId, events } of ledgers) {
      const next = history(organizationId, { from: firstCallAtMs, everyMs: callEveryMs })
      for (let at = 0; at < events; ) {
        const batch = take(next, Math.min(eventsPerWrite, events - at))
        await write(client, [appendsOf(organizationId, batch, at)])
        at += batch.length
        count += batch.length
      }
    }
    return count
  })

/** Ledgers that can be extended repeatedly, with their appends in alternation, as if the calls had been made. */
export const openHistories = (url: string, organizationIds: readonly string[]) => {
  const ledgers = organizationIds.map((organizationId) => ({ organizationId, at: 0 }))
  const histories = new Map<string, ReturnType<typeof history>>()
  return {
    /**
     * Adds `events` to each ledger. `from` is the time of the first added call; all added calls are before `to`. `between`: the events that
     * the service has appended to the only ledger since the last calls.
     */
    grow: (
      events: number,
      { from, to, between = [] }: { readonly from: number; readonly to: number } & Pick<Pace, 'between'>,
    ): Promise<number> =>
      written(url, async (client) => {
        for (const ledger of ledgers) ledger.at += between.length
        const everyMs = Math.floor((to - from) / events)
        const perWrite = eventsPerAppend * Math.ceil(eventsPerWrite / eventsPerAppend / ledgers.length)
        let count = 0
        for (let left = events; left > 0; left -= perWrite) {
          const appends = ledgers.map((ledger) => {
            const { organizationId } = ledger
            const next = histories.get(organizationId) ?? history(organizationId, { from, everyMs })
            histories.set(organizationId, next)
            const batch = take(
              next,
              Math.min(perWrite, left),
              left === events ? { from, everyMs, between } : undefined,
            )
            const made = appendsOf(organizationId, batch, ledger.at)
            ledger.at += batch.length
            count += batch.length
            return made
          })
          await write(client, appends)
        }
        return count
      }),
  }
}

const written = async (url: string, work: (client: pg.Client) => Promise<number>): Promise<number> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const count = await work(client)
    await client.query('analyze log_segments; analyze log_stream_marks')
    return count
  } finally {
    await client.end()
  }
}

type Pace = {
  readonly from: number
  readonly everyMs: number
  /** Events that the service has appended since the last calls of this history. */
  readonly between?: readonly RecordedEvent[]
}

/** Takes this many events, or one more so that a call and its charge are not separated. */
const take = (calls: ReturnType<typeof history>, count: number, pace?: Pace): NewEvent[] => {
  const events: NewEvent[] = []
  while (events.length < count) {
    const { value = [] } = calls.next(events.length === 0 ? pace : undefined)
    events.push(...value)
  }
  return events
}

/** The events of an endless series of calls. One call in eight is free, as for an address without a location. */
function* history(
  organizationId: string,
  { from, everyMs }: Pace,
): Generator<NewEvent[], undefined, Pace | undefined> {
  const account = newAccount(organizationId)
  const book = priceBookOf(defaultPriceBook)
  const keyId = 'l1WO9Eavc8p3Riys'
  const stream = ledgerStream(organizationId)
  let atMs = from
  const chained = (key: string, actor: string, decision: Decision): NewEvent[] => {
    if (isRefusal(decision)) throw new Error(decision.refused)
    return decision.map((event: LedgerEvent, i) => {
      const encoded = encodeEvent(event, {
        id: eventIdOf(organizationId, key, i),
        actor,
        effectiveAt: new Date(atMs).toISOString(),
        requestId: key,
        causationId: i === 0 ? undefined : eventIdOf(organizationId, key, 0),
      })
      const revision = account.revision + 1
      const { event: done, digest } = chain(
        encoded,
        { stream, revision, previous: account.digest },
        new Date(atMs).toISOString(),
      )
      evolve(account, event, revision)
      account.digest = digest
      return done
    })
  }
  yield chained('register', 'system', registerOrganization(account, { name: 'Bench', overdraftLimit: 0n }))
  const grantId = eventIdOf(organizationId, 'grant', 0)
  const opening = { grantId, amount: credits, priority: 100, expiresAt: null, reason: 'benchmark' }
  yield chained('grant', 'system', grantCredits(account, opening))
  const requestIds = createRequestIds()
  for (let call = 0; ; call++) {
    atMs += everyMs
    const key = requestIds(atMs)
    const located = call % 8 !== 0
    const given = yield chained(
      key,
      `key:${keyId}`,
      recordCall(
        account,
        {
          keyId,
          capability: 'ip_lookup',
          outcome: 'answered',
          facts: {
            kind: 'ip_lookup',
            success: located,
            country_code: located ? 'DE' : null,
            address_hmac: Buffer.from(randomUUID().replaceAll('-', '')).toString('base64url'),
          },
        },
        { book, chargeId: () => eventIdOf(organizationId, key, 1), atMs },
      ),
    )
    if (given === undefined) continue
    everyMs = given.everyMs
    atMs = Math.max(atMs, given.from)
    for (const event of given.between ?? []) {
      evolve(account, decodeLedgerEvent(event) as LedgerEvent, event.revision)
      account.digest = digestAfter(event)
    }
  }
}

type Append = {
  readonly organizationId: string
  readonly expected: number
  readonly count: number
  readonly segment: Segment
}

const appendsOf = (organizationId: string, events: readonly NewEvent[], from: number): Append[] =>
  Array.from({ length: Math.ceil(events.length / eventsPerAppend) }, (_, n) => {
    const own = events.slice(n * eventsPerAppend, (n + 1) * eventsPerAppend)
    return {
      organizationId,
      expected: from + n * eventsPerAppend - 1,
      count: own.length,
      segment: packSegment(own),
    }
  })

/** Writes as the log's own adapter does, the nth appends of all ledgers as one batch, but all batches in one transaction. */
const write = async (client: pg.Client, ledgers: readonly (readonly Append[])[]): Promise<void> => {
  await client.query('begin')
  const longest = Math.max(...ledgers.map((appends) => appends.length))
  for (let n = 0; n < longest; n++)
    await writeBatch(
      client,
      ledgers.flatMap((appends) => appends[n] ?? []),
    )
  await client.query('commit')
}

const writeBatch = async (client: pg.Client, appends: readonly Append[]): Promise<void> => {
  const { rows } = await client.query<{ least: string }>({
    name: 'append_batch',
    text: `select min(result) as least
       from unnest(append_batch($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6, $7)) result`,
    values: [
      appends.map(({ organizationId }) => ledgerStream(organizationId)),
      appends.map(({ expected }) => expected),
      appends.map(({ count }) => count),
      appends.map(({ segment }) => segment.bytes),
      appends.map(({ segment }) => segment.events.length),
      Buffer.from(appends.map(({ segment }) => segment.ids).join(''), 'hex'),
      Buffer.concat(appends.map(({ segment }) => segment.events)),
    ],
  })
  if (Number(rows[0]?.least) < 0) throw new Error('a ledger is not as its history left it')
}
