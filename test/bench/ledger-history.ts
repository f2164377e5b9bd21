import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { eventIdOf } from '../../src/event-log/event-id.ts'
import { chain } from '../../src/event-log/hash-chain.ts'
import type { NewEvent } from '../../src/event-log/port.ts'
import { packSegment } from '../../src/event-log/postgres/segment.ts'
import { encodeEvent } from '../../src/event-log/stored-event.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { evolve, newAccount } from '../../src/ledger/account.ts'
import { grantCredits, recordCall, registerOrganization } from '../../src/ledger/decide.ts'
import { type Decision, isRefusal } from '../../src/ledger/decision.ts'

/**
 * Ledgers of any length, decided, encoded and chained by the service's own functions and written in bulk: as if the
 * calls had happened, in minutes instead of hours.
 */

const eventsPerWrite = 20_000
/** As many as a busy ledger has in one append: 35 calls and their charges. */
const eventsPerAppend = 70
/** Calls lie this far apart, so that a million of them spread over days. */
const callEveryMs = 250
const firstCallAtMs = Date.parse('2026-01-01T00:00:00.000Z')
const credits = parseCredits('1000000000')

/** Writes ledgers of about `events` events each, for organizations that did not exist. Resolves with the count. */
export const writeHistory = async (
  url: string,
  ledgers: readonly { readonly organizationId: string; readonly events: number }[],
): Promise<number> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  let written = 0
  try {
    for (const { organizationId, events } of ledgers) {
      let from = 0
      let batch: NewEvent[] = []
      for (const event of history(organizationId, events)) {
        batch.push(event)
        if (batch.length < eventsPerWrite) continue
        await write(client, organizationId, batch, from)
        from += batch.length
        batch = []
      }
      if (batch.length > 0) await write(client, organizationId, batch, from)
      written += from + batch.length
    }
    await client.query('analyze log_segments; analyze log_streams')
    return written
  } finally {
    await client.end()
  }
}

/** One in eight calls is free, as an address without a place is. */
function* history(organizationId: string, events: number): Generator<NewEvent> {
  const account = newAccount(organizationId)
  const book = priceBookOf(defaultPriceBook)
  const keyId = 'l1WO9Eavc8p3Riys'
  const stream = ledgerStream(organizationId)
  let atMs = firstCallAtMs
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
  yield* chained('register', 'system', registerOrganization(account, { name: 'Bench', overdraftLimit: 0n }))
  const grantId = eventIdOf(organizationId, 'grant', 0)
  yield* chained(
    'grant',
    'system',
    grantCredits(account, { grantId, amount: credits, priority: 100, expiresAt: null, reason: 'benchmark' }),
  )
  for (let call = 0; account.revision + 1 < events; call++) {
    atMs += callEveryMs
    const key = `req${call.toString().padStart(23, '0')}`
    const located = call % 8 !== 0
    yield* chained(
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
  }
}

/** As the log's own adapter writes, in larger batches than it would, one append of a stream after the other. */
const write = (client: pg.Client, organizationId: string, events: readonly NewEvent[], from: number) => {
  const appends = Array.from({ length: Math.ceil(events.length / eventsPerAppend) }, (_, n) => {
    const own = events.slice(n * eventsPerAppend, (n + 1) * eventsPerAppend)
    return { expected: from + n * eventsPerAppend - 1, count: own.length, segment: packSegment(own) }
  })
  return client.query(
    'select append_batch($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6, $7)',
    [
      appends.map(() => ledgerStream(organizationId)),
      appends.map(({ expected }) => expected),
      appends.map(({ count }) => count),
      appends.map(({ segment }) => segment.bytes),
      appends.map(({ segment }) => segment.events.length),
      Buffer.from(appends.map(({ segment }) => segment.ids).join(''), 'hex'),
      Buffer.concat(appends.map(({ segment }) => segment.events)),
    ],
  )
}
