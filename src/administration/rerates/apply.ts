import { formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import { appendChained } from '../../event-log/append-chained.ts'
import { repeatConflicts } from '../../event-log/append-next.ts'
import { AppendConflict } from '../../event-log/port.ts'
import { decodeEvent, encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { DomainEvent, LedgerEvent } from '../../events/catalogue.ts'
import type { RerateLedgerPlanned } from '../../events/rerates.ts'
import { rerateStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused, type Committed, LedgerChanged } from '../../ledger/command.ts'
import { firstInLedger } from '../../ledger/read-ledger.ts'
import { collectedUntil } from '../../ledger/rerate/plan.ts'
import { evolveRun, termsOf } from '../../ledger/rerate/run.ts'
import { costsChangedSince } from '../../ledger/rerate/since.ts'
import { approvalRefusal, readOperators } from '../approval.ts'
import type { OperatorState } from '../users/operators.ts'
import { type ProvedRun, provedRun } from './proof.ts'

type Rerating = Pick<Foundation, 'eventLog' | 'ledger' | 'checkpoints' | 'secrets'>

type Changing = { readonly foundation: Rerating; readonly actor: string; found: ProvedRun }

const changing = async (
  foundation: Rerating,
  { run, actor }: { run: string; actor: string },
): Promise<Changing> => ({ foundation, actor, found: await provedRun(foundation, run) })

/** Appends the result of `decide` for the current run, and decides again if another process has appended first. */
const appendToRun = async (
  run: Changing,
  decide: (found: ProvedRun) => DomainEvent | null,
): Promise<ProvedRun> => {
  const { foundation, actor } = run
  return repeatConflicts(rerateStream(run.found.run), async () => {
    const { found } = run
    const event = decide(found)
    if (event === null) return found
    const stream = rerateStream(found.run)
    const effectiveAt = new Date().toISOString()
    const encoded = encodeEvent(event, {
      // If two processes make the same decision, their events have the same id, and only one is written.
      id: eventIdOf(stream, `${found.revision + 1}/${actor}/${JSON.stringify(event)}`, 0),
      actor,
      effectiveAt,
    })
    try {
      await appendChained(foundation.eventLog, stream, found.revision, [encoded])
    } catch (error) {
      if (error instanceof AppendConflict) run.found = await provedRun(foundation, found.run)
      throw error
    }
    evolveRun(found, event, { actor, effective_at: effectiveAt })
    found.revision++
    return found
  })
}

const refuse = (why: string): never => {
  throw new CommandRefused(why)
}

/** Throws `CommandRefused` if the run can no longer change. */
export const refuseEnded = ({ run, applied, abandoned }: ProvedRun): void => {
  if (applied !== null)
    refuse(`${run} was applied by ${applied.by} at ${applied.at}; a re-rate is applied only once`)
  if (abandoned !== null)
    refuse(`${run} was abandoned by ${abandoned.by} at ${abandoned.at}: ${abandoned.reason}`)
}

type Approval = {
  readonly run: string
  readonly actor: string
  readonly twoPerson: boolean
}

/** Throws `CommandRefused` if the actor may not approve the run, or the run has ended. */
export const refuseApproval = (
  found: ProvedRun,
  approval: Omit<Approval, 'run'>,
  operators: OperatorState,
): void => {
  refuseEnded(found)
  const { actor: approver, twoPerson } = approval
  const why = approvalRefusal({ proposer: found.proposed.by, approver, twoPerson, operators })
  if (why !== null) refuse(why)
}

/** Approves a run; a second approval changes nothing. Throws `CommandRefused` if the actor may not approve it. */
export const approveRerate = async (foundation: Rerating, approval: Approval): Promise<ProvedRun> => {
  const operators = await readOperators(foundation.eventLog, approval.twoPerson)
  return appendToRun(await changing(foundation, approval), (found) => {
    refuseEnded(found)
    if (found.approved !== null) return null
    refuseApproval(found, approval, operators)
    const { run, proposed } = found
    return {
      type: 'RerateApproved',
      data: { run, plan_digest: proposed.plan_digest, approver: approval.actor },
    }
  })
}

/** Abandons a run. Adjustments that were already made remain. */
export const abandonRerate = async (
  foundation: Rerating,
  { run, reason, actor }: { run: string; reason: string; actor: string },
): Promise<ProvedRun> => {
  const changed = await changing(foundation, { run, actor })
  await appendToRun(changed, (found) => {
    refuseEnded(found)
    return { type: 'RerateAbandoned', data: { run, reason } }
  })
  return tellOfAdjusted(changed)
}

/**
 * Records the adjustments that an abandoned run has made but not recorded because its process was killed. The ledger shows whether
 * an adjustment was made. Until the adjustment is recorded, the cost of the ledger's calls is unknown.
 */
const tellOfAdjusted = async (changed: Changing): Promise<ProvedRun> => {
  const { foundation, actor } = changed
  const { run, approved, abandoned, ledgers } = changed.found
  for (const planned of approved === null || abandoned === null ? [] : ledgers.values()) {
    const { organization_id: organizationId, revision } = planned
    if (changed.found.done.has(organizationId)) continue
    const adjustmentId = eventIdOf(organizationId, keyOf(run), 0)
    const there = await firstInLedger(foundation.eventLog, organizationId, {
      from: revision + 1,
      fits: ({ id }) => id === adjustmentId,
    })
    if (there === null) continue
    const { type, data } = decodeEvent(there)
    const committed = { events: [{ type, data } as LedgerEvent], revision: there.revision }
    const outcome = await appliedTo(foundation, { planned, found: changed.found, actor }, committed)
    await appendToRun(changed, (now) => (now.done.has(organizationId) ? null : outcome))
  }
  return changed.found
}

type Applying = {
  readonly run: string
  readonly actor: string
  readonly twoPerson: boolean
  readonly onProgress?: (done: number, of: number) => void
}

/** Throws `CommandRefused` if the run has ended, or was not approved by someone who may approve it. */
export const refuseApplying = (found: ProvedRun, { twoPerson }: { readonly twoPerson: boolean }): void => {
  refuseEnded(found)
  const { run, approved, proposed } = found
  if (approved === null || approved.planDigest !== proposed.plan_digest)
    throw new CommandRefused(`${run} is not approved; see "rerate approve"`)
  // The approval in the stream is checked again, because it counts only if the approver had the right to approve.
  const why = approvalRefusal({ proposer: proposed.by, approver: approved.by, twoPerson, operators: null })
  if (why !== null) refuse(`${run} was not approved by an authorized person: ${why}`)
}

/**
 * Applies an approved plan, ledger by ledger. An interrupted run can be resumed, and adjustments that were made are not repeated.
 * Throws `CommandRefused` if the plan was not approved, was changed, or is already applied.
 */
export const applyRerate = async (foundation: Rerating, applying: Applying): Promise<ProvedRun> => {
  const { actor, twoPerson, onProgress } = applying
  const changed = await changing(foundation, applying)
  refuseApplying(await tellOfAdjusted(changed), { twoPerson })
  const { ledgers } = changed.found
  for (const planned of ledgers.values()) {
    const { organization_id: organizationId } = planned
    if (changed.found.done.has(organizationId)) continue
    refuseEnded(changed.found)
    const outcome = await applyToLedger(foundation, { planned, found: changed.found, actor })
    const { done } = await appendToRun(changed, (now) => {
      if (now.done.has(organizationId)) return null
      // If the ledger was adjusted, the adjustment must be recorded even if the run has ended in the meantime.
      if (outcome.type === 'RerateLedgerLeftOut') refuseEnded(now)
      return outcome
    })
    onProgress?.(done.size, ledgers.size)
  }
  return appendToRun(changed, (now) => {
    if (now.applied !== null) return null
    refuseEnded(now)
    return appliedEvent(now)
  })
}

const appliedEvent = ({ run, done }: ProvedRun): DomainEvent => {
  const applied = [...done.values()].filter((one) => 'adjustment_id' in one)
  const sum = (amounts: readonly string[]): string =>
    formatCredits(amounts.reduce<MicroCredits>((all, one) => all + parseCredits(one), 0n))
  return {
    type: 'RerateApplied',
    data: {
      run,
      applied: applied.length,
      left_out: done.size - applied.length,
      amount: sum(applied.map(({ amount }) => amount)),
      uncollected: sum(applied.map(({ uncollected }) => uncollected)),
    },
  }
}

type OneLedger = { readonly planned: RerateLedgerPlanned; readonly found: ProvedRun; readonly actor: string }

const rereadsMax = 16

const applyToLedger = async (foundation: Rerating, one: OneLedger): Promise<DomainEvent> => {
  const { planned, found } = one
  const organizationId = planned.organization_id
  let unlessAdjustedAfter = planned.revision
  for (let reread = 0; ; reread++) {
    try {
      return await appliedTo(foundation, one, await adjust(foundation, one, unlessAdjustedAfter))
    } catch (error) {
      if (!(error instanceof LedgerChanged) || reread >= rereadsMax) throw error
    }
    const since = await costsChangedSince(foundation, {
      organizationId,
      run: termsOf(found.proposed, planned),
      upTo: planned.revision,
    })
    if (since.changed !== null)
      return {
        type: 'RerateLedgerLeftOut',
        data: { run: found.run, organization_id: organizationId, reason: since.changed },
      }
    unlessAdjustedAfter = since.revision
  }
}

/** All attempts of a run use the same command key, so a ledger is adjusted only once, even if several processes apply the run. */
const keyOf = (run: string): string => `rerate/${run}`

const adjust = (
  { ledger }: Rerating,
  { planned, found: { run, proposed }, actor }: OneLedger,
  unlessAdjustedAfter: number,
): Promise<Committed> =>
  ledger.submit(planned.organization_id, {
    key: keyOf(run),
    absentUpTo: planned.revision,
    atMs: Date.now(),
    actor,
    kind: 'adjust',
    adjusts: null,
    amount: parseCredits(planned.given) - parseCredits(planned.taken),
    reason: proposed.reason,
    rerateRun: run,
    correction: 'rerate',
    unlessAdjustedAfter,
    upToAvailable: true,
  })

const appliedTo = async (
  foundation: Rerating,
  { planned, found }: OneLedger,
  { events, revision }: Pick<Committed, 'events' | 'revision'>,
): Promise<DomainEvent> => {
  const [adjusted] = events
  if (adjusted?.type !== 'CreditAdjusted')
    throw new Error(`the adjustment of ${planned.organization_id} by ${found.run} is another event`)
  const given = parseCredits(planned.given)
  const taken = parseCredits(planned.taken)
  const { amount, adjustment_id } = adjusted.data
  /** The credits taken for calls that became more expensive. */
  const collected = given - parseCredits(amount)
  const until =
    collected === taken
      ? null
      : await collectedUntil(
          foundation,
          {
            organizationId: planned.organization_id,
            terms: termsOf(found.proposed, planned),
            nowMs: 0,
            upTo: planned.revision,
          },
          collected,
        )
  return {
    type: 'RerateLedgerApplied',
    data: {
      run: found.run,
      organization_id: planned.organization_id,
      revision,
      adjustment_id,
      amount,
      uncollected: formatCredits(taken - collected),
      collected_until:
        until === null ? null : { revision: until.revision, amount: formatCredits(until.amount) },
    },
  }
}
