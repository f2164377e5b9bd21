import type { EventLog } from '../../event-log/port.ts'
import { pagesOf } from '../../event-log/read-stream.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { ledgerStream } from '../../events/streams.ts'
import { finishedRun } from '../explain/corrected-costs.ts'
import type { RunOnLedger } from './part.ts'

/**
 * Whether the costs of a run's calls have changed since the plan was made, so that the plan is wrong for this ledger. `revision` is the last
 * revision that was checked.
 */
export const costsChangedSince = async (
  { eventLog }: { readonly eventLog: Pick<EventLog, 'read'> },
  { organizationId, run, upTo }: { organizationId: string; run: RunOnLedger; upTo: number },
): Promise<{ changed: string | null; revision: number }> => {
  const stream = ledgerStream(organizationId)
  const charges = new Map<string, string>()
  const runs = new Set<string>()
  let revision = upTo
  for await (const page of pagesOf(eventLog, stream, { from: upTo + 1, whole: true }))
    for (const recorded of page) {
      revision = recorded.revision
      if (recorded.type !== 'CreditAdjusted') continue
      const { type, data } = decodeEvent(recorded)
      if (type !== 'CreditAdjusted') continue
      if (data.adjusts !== null) charges.set(data.adjusts, data.kind)
      else if (data.rerate_run !== null && data.rerate_run !== run.run) runs.add(data.rerate_run)
    }
  for (const other of runs) {
    const { fromMs, toMs } = await finishedRun({ eventLog }, organizationId, other)
    if (fromMs < run.toMs && run.fromMs < toMs)
      return { changed: `re-rate ${other} has since been applied to calls in this range`, revision }
  }
  const touched = charges.size === 0 ? null : await firstWithin(eventLog, { stream, charges, run })
  return { changed: touched, revision }
}

/** Finds a charge, whose id is the id of its event. */
const firstWithin = async (
  eventLog: Pick<EventLog, 'read'>,
  { stream, charges, run }: { stream: string; charges: ReadonlyMap<string, string>; run: RunOnLedger },
): Promise<string | null> => {
  for await (const page of pagesOf(eventLog, stream, { from: 0, upTo: run.plannedRevision, whole: true }))
    for (const recorded of page) {
      const kind = charges.get(recorded.id)
      if (kind === undefined) continue
      const { metadata } = decodeEvent(recorded)
      const atMs = Date.parse(metadata.effective_at)
      if (atMs >= run.fromMs && atMs < run.toMs)
        return `call ${metadata.request_id ?? recorded.id} in the range has since been corrected (${kind})`
    }
  return null
}
