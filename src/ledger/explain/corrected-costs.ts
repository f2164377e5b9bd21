import { parseCredits } from '../../billing/money.ts'
import { type EventLog, Unavailable } from '../../event-log/port.ts'
import type { CreditAdjusted } from '../../events/credits.ts'
import type { LedgerCall } from '../ledger-calls.ts'
import type { Correction, RunOnLedger } from '../rerate/part.ts'
import { readRun, runOnLedger } from '../rerate/run.ts'

type Log = { readonly eventLog: Pick<EventLog, 'read'> }

/**
 * The corrections of call costs in a ledger: refunds and reversals by charge, and re-rating runs. Corrections are few enough to keep all of
 * them in memory, unlike calls.
 */
export type Corrections = {
  readonly byCharge: ReadonlyMap<string, readonly Correction[]>
  readonly runs: readonly Correction[]
}

export const noCorrections: Corrections = { byCharge: new Map(), runs: [] }

/** A call's corrections, in ledger order. */
export const correctionsOf = ({ byCharge, runs }: Corrections, call: LedgerCall): readonly Correction[] => {
  const own = call.charge === null ? undefined : byCharge.get(call.charge.charge_id)
  return own === undefined ? runs : [...own, ...runs].sort((a, b) => a.revision - b.revision)
}

export type Seen = { readonly adjustment: CreditAdjusted; readonly revision: number }

/** Whether an adjustment changes the cost of calls. */
export const isOfCalls = ({ adjusts, rerate_run }: CreditAdjusted): boolean =>
  adjusts !== null || rerate_run !== null

/** Reads the re-rating runs of adjustments. Throws `Unavailable` if one of the runs is not finished. */
export const correctionsFrom = async (
  { eventLog }: Log,
  organizationId: string,
  seen: readonly Seen[],
): Promise<Corrections> => {
  const byCharge = new Map<string, Correction[]>()
  const runs: Correction[] = []
  for (const { adjustment, revision } of seen) {
    const { adjusts, rerate_run, kind, amount } = adjustment
    if (adjusts !== null) {
      const own = byCharge.get(adjusts) ?? []
      byCharge.set(adjusts, [...own, { revision, given: { kind, amount: parseCredits(amount) } }])
    } else if (rerate_run !== null)
      runs.push({ revision, run: await finishedRun({ eventLog }, organizationId, rerate_run) })
  }
  return { byCharge, runs }
}

/**
 * Reads a re-rating run. Throws `Unavailable` if the run is not finished for this ledger, because the cost of the ledger's calls is
 * then uncertain.
 */
export const finishedRun = async (
  { eventLog }: Log,
  organizationId: string,
  run: string,
): Promise<RunOnLedger> => {
  const found = runOnLedger(await readRun(eventLog, run), organizationId)
  if (found === null)
    throw new Unavailable(
      `re-rate ${run} has adjusted the ledger of ${organizationId}, but did not finish there. Apply the re-rate again`,
    )
  return found
}
