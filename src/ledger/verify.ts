import { genesisDigest, recompute } from '../event-log/hash-chain.ts'
import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { checkEventData, isEventType, type LedgerEvent } from '../events/catalogue.ts'
import { ledgerStream } from '../events/streams.ts'
import { type Account, availableOf, evolve, newAccount } from './account.ts'

/** Where a ledger stops being what was written, and why. */
export type LedgerFault = {
  readonly revision: number
  readonly event_id: string
  readonly type: string
  readonly fault: string
}

export type LedgerVerdict = {
  readonly organizationId: string
  readonly events: number
  readonly digest: string
  readonly account: Account
  /** The first broken event; null for a sound ledger. */
  readonly fault: LedgerFault | null
}

const pageMax = 1_000

/**
 * Recomputes the hash chain of a ledger from its first event and folds it as it goes: every digest, contiguous
 * revisions, no event or charge id twice, data that fits its schema, no charge beyond the overdraft limit. Stops at the
 * first fault and names the event.
 */
export const verifyLedger = async (
  eventLog: EventLog,
  organizationId: string,
  onProgress?: (events: number) => void,
): Promise<LedgerVerdict> => {
  const stream = ledgerStream(organizationId)
  const account = newAccount(organizationId)
  const seen = new Seen()
  let digest = genesisDigest
  let events = 0
  for (;;) {
    const page = await eventLog.read(stream, { from: events, max: pageMax })
    for (const recorded of page) {
      const { carried, computed } = recompute(recorded, { stream, revision: events, previous: digest })
      const fault = faultOf(recorded, { expectedRevision: events, carried, computed, seen, account })
      if (fault !== null)
        return {
          organizationId,
          events,
          digest,
          account,
          fault: { revision: recorded.revision, event_id: recorded.id, type: recorded.type, fault },
        }
      digest = computed
      events++
    }
    onProgress?.(events)
    if (page.length < pageMax) return { organizationId, events, digest, account, fault: null }
  }
}

/** Ids met so far. A single Set ends at 2^24 entries, which a busy ledger has after some years. */
class Seen {
  readonly #byStart = new Map<string, Set<string>>()
  has(id: string): boolean {
    return this.#byStart.get(id.slice(0, 2))?.has(id) === true
  }
  add(id: string): void {
    const start = id.slice(0, 2)
    const own = this.#byStart.get(start)
    if (own === undefined) this.#byStart.set(start, new Set([id]))
    else own.add(id)
  }
}

const faultOf = (
  recorded: RecordedEvent,
  found: {
    expectedRevision: number
    carried: string | null
    computed: string
    seen: Seen
    account: Account
  },
): string | null => {
  const { expectedRevision, carried, computed, seen, account } = found
  if (recorded.revision !== expectedRevision)
    return `expected revision ${expectedRevision}: an event is missing`
  if (carried === null) return 'carries no digest'
  if (carried !== computed)
    return 'its bytes do not give the digest it carries: it, or the event before it, was changed'
  if (seen.has(recorded.id)) return 'its event id stands in this ledger twice'
  seen.add(recorded.id)
  try {
    const { type, data, metadata } = decodeEvent(recorded)
    if (isEventType(recorded.type))
      checkEventData(recorded.type, metadata.schema_version, JSON.parse(recorded.data))
    if (type === 'CreditCharged') {
      // A charge id is its event's id; another one would have to be new as well.
      if (data.charge_id !== recorded.id && seen.has(data.charge_id))
        return `charge ${data.charge_id} stands in this ledger twice`
      seen.add(data.charge_id)
    }
    evolve(account, { type, data } as LedgerEvent, recorded.revision)
    const available = availableOf(account, Date.parse(metadata.effective_at))
    if (type === 'CreditCharged' && available < 0n)
      return 'charges more than the balance and overdraft limit allow'
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}
