import { hash } from 'node:crypto'
import { parseCredits } from '../../billing/money.ts'
import { priceBookOf } from '../../billing/price-book.ts'
import { genesisDigest, recompute } from '../../event-log/hash-chain.ts'
import type { EventLog } from '../../event-log/port.ts'
import { pagesOf } from '../../event-log/read-stream.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEvent, DomainEventOf } from '../../events/catalogue.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import type { RerateLedgerPlanned, RerateProposed } from '../../events/rerates.ts'
import { rerateStream } from '../../events/streams.ts'
import type { RunOnLedger } from './part.ts'

/** A re-rate, read from its stream: the plan, the approval, and the ledgers to which it was applied. */

type Act = { readonly by: string; readonly at: string }
type Applied = DomainEventOf<'RerateLedgerApplied'>['data']
type LeftOut = DomainEventOf<'RerateLedgerLeftOut'>['data']

export type RerateRun = {
  readonly run: string
  /** The revision of the stream's last event, or −1 if the run does not exist. */
  revision: number
  /** The planned ledgers by organization, in the order of the plan. */
  readonly ledgers: Map<string, RerateLedgerPlanned>
  /** Null if the plan is not complete. */
  proposed: (RerateProposed & Act) | null
  approved: (Act & { readonly planDigest: string }) | null
  abandoned: (Act & { readonly reason: string }) | null
  readonly done: Map<string, Applied | LeftOut>
  applied: (DomainEventOf<'RerateApplied'>['data'] & Act) | null
}

/** The stream of a run was changed after it was written. */
export class RunChanged extends Error {
  override name = 'RunChanged'
}

/** Reads a run and checks its hash chain. Throws `RunChanged` if the chain is broken. */
export const readRun = async (eventLog: Pick<EventLog, 'read'>, run: string): Promise<RerateRun> => {
  const stream = rerateStream(run)
  const state: RerateRun = {
    run,
    revision: -1,
    ledgers: new Map(),
    proposed: null,
    approved: null,
    abandoned: null,
    done: new Map(),
    applied: null,
  }
  let previous = genesisDigest
  for await (const page of pagesOf(eventLog, stream, { from: 0 }))
    for (const recorded of page) {
      const { carried, computed } = recompute(recorded, {
        stream,
        revision: state.revision + 1,
        previous,
      })
      if (carried !== computed)
        throw new RunChanged(
          `event ${recorded.revision} of ${stream} (${recorded.type}) was changed after it was written: its bytes do not match its digest`,
        )
      previous = computed
      state.revision = recorded.revision
      const event = decodeEvent(recorded)
      evolveRun(state, event, event.metadata)
    }
  return state
}

/** Adds the next event to a run, in place. */
export const evolveRun = (
  state: RerateRun,
  { type, data }: DomainEvent,
  metadata: Pick<EventMetadata, 'actor' | 'effective_at'>,
): void => {
  const act = { by: metadata.actor, at: metadata.effective_at }
  switch (type) {
    case 'RerateLedgerPlanned':
      state.ledgers.set(data.organization_id, data)
      return
    case 'RerateProposed':
      state.proposed = { ...data, ...act }
      return
    case 'RerateApproved':
      state.approved ??= { ...act, planDigest: data.plan_digest }
      return
    case 'RerateAbandoned':
      state.abandoned ??= { ...act, reason: data.reason }
      return
    case 'RerateLedgerApplied':
    case 'RerateLedgerLeftOut':
      state.done.set(data.organization_id, data)
      return
    case 'RerateApplied':
      state.applied ??= { ...data, ...act }
      return
  }
}

type Planned = Omit<RerateProposed, 'plan_digest' | 'signature'>

/** The base64url SHA-256 of a plan: of the proposal and then its ledgers, each as the JSON of its event and a line break. */
export const planDigest = (proposed: Planned, ledgers: Iterable<RerateLedgerPlanned>): string =>
  hash('sha256', [proposed, ...ledgers].map((part) => `${JSON.stringify(part)}\n`).join(''), 'base64url')

/** A proposal without its derived members. */
export const plannedOf = ({
  run,
  from,
  to,
  organization_id,
  book,
  reason,
  ledgers,
  calls,
  calls_affected,
  given,
  taken,
}: RerateProposed): Planned => ({
  run,
  from,
  to,
  organization_id,
  book,
  reason,
  ledgers,
  calls,
  calls_affected,
  given,
  taken,
})

/** A run's effect on one ledger. Null if the run has not adjusted the ledger, or if it is not yet known whether it has. */
export const runOnLedger = (
  { run, proposed, ledgers, done }: RerateRun,
  organizationId: string,
): RunOnLedger | null => {
  const planned = ledgers.get(organizationId)
  const applied = done.get(organizationId)
  if (proposed === null || planned === undefined || applied === undefined || !('adjustment_id' in applied))
    return null
  const until = applied.collected_until
  return {
    ...termsOf(proposed, planned),
    run,
    collectedUntil: until === null ? null : { revision: until.revision, amount: parseCredits(until.amount) },
  }
}

/** A run's effect on a ledger, provided that the whole amount is collected. */
export const termsOf = (proposed: Planned, planned: RerateLedgerPlanned): RunOnLedger => ({
  run: proposed.run,
  fromMs: Date.parse(proposed.from),
  toMs: Date.parse(proposed.to),
  book: bookOf(proposed),
  plannedRevision: planned.revision,
  overrides: planned.overrides,
  collectedUntil: null,
})

const bookOf = ({ book }: Planned) => priceBookOf(pricesOf(book))

/** A book that was never published has no version. Its digest is calculated as if it were version 1. */
export const pricesOf = ({
  version,
  effective_from,
  rules,
}: Pick<RerateProposed['book'], 'version' | 'effective_from' | 'rules'>) => ({
  version: version ?? 1,
  effective_from,
  rules: [...rules],
})
