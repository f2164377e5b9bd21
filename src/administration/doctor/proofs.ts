import type pg from 'pg'
import { type EventLog, type RecordedEvent, StreamMissing } from '../../event-log/port.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import { operatorStream, priceBookStream } from '../../events/streams.ts'
import { pendingDeliveries } from '../../webhooks/outbox.ts'
import { lastReconciliation } from '../reconciliations.ts'
import { type Check, durationText, fault, ok, type Told, warning } from './finding.ts'
import { newestOf, newestOfCheckpoints } from './newest.ts'

/** What is done again and again so that the log can be proved and brought back: checkpoints, reconciliations, backups; and webhooks. */

const hourMs = 3_600_000
/** One is signed every hour. */
const checkpointAgeMaxMs = 2 * hourMs
const checkpointFaultMs = 26 * hourMs
/** It is done every day. */
const reconciliationAgeMaxMs = 48 * hourMs
const backupAgeMaxMs = 48 * hourMs
const webhookWaitMaxMs = hourMs
/** Operators and the service do little else in a month than so many things. */
const lookBackMax = 5_000

export const proofChecks = (eventLog: EventLog): readonly Check[] => [
  {
    about: 'checkpoints',
    look: async () => {
      const { checkpoint } = await newestOfCheckpoints(eventLog)
      return checkpointFinding(checkpoint?.at ?? null, {
        sinceMs: await begunMs(eventLog),
        nowMs: Date.now(),
      })
    },
  },
  {
    about: 'reconciliation',
    look: async () =>
      reconciliationFinding(await lastReconciliation(eventLog), {
        sinceMs: await begunMs(eventLog),
        nowMs: Date.now(),
      }),
  },
  {
    about: 'backup',
    look: async () => {
      const last = await newestOf(eventLog, operatorStream, {
        wanted: ({ type }) => type === 'BackupCreated',
        lookBackMax,
      })
      return backupFinding(last, { sinceMs: await begunMs(eventLog), nowMs: Date.now() })
    },
  },
]

export const webhooksCheck = (pool: pg.Pool): Check => ({ about: 'webhooks', look: () => webhooks(pool) })

/** `sinceMs`: since when there is anything to prove; null: the log is empty. */
type Instants = { readonly sinceMs: number | null; readonly nowMs: number }

/** When this installation began, by the log's clock: its first event is a price book. Null: there is none yet. */
const begunMs = async (eventLog: Pick<EventLog, 'read'>): Promise<number | null> => {
  const [first] = await eventLog.read(priceBookStream, { max: 1 }).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  return first?.recordedAtMs ?? null
}

/** Pure. */
const checkpointFinding = (at: string | null, { sinceMs, nowMs }: Instants): Told => {
  const ageMs = nowMs - (at === null ? (sinceMs ?? nowMs) : Date.parse(at))
  const says =
    at === null
      ? `none was ever signed${sinceMs === null ? '' : `, and the event log is ${durationText(ageMs)} old`}`
      : `the last was signed ${durationText(ageMs)} ago`
  const remedy =
    'See that a process with the role jobs runs, and what its job checkpoint says in the log. "event-log checkpoint" signs one now, or says why not.'
  if (ageMs > checkpointFaultMs) return fault(says, remedy)
  return ageMs > checkpointAgeMaxMs ? warning(says, remedy) : ok(says)
}

/** Pure. */
const reconciliationFinding = (
  last: { readonly at: string; readonly differences: number } | null,
  { sinceMs, nowMs }: Instants,
): Told => {
  const ageMs = nowMs - (last === null ? (sinceMs ?? nowMs) : Date.parse(last.at))
  if (last !== null && last.differences > 0)
    return fault(
      `the last, ${durationText(ageMs)} ago, found ${last.differences} differences between log, read models and tariff`,
      '"ledger reconcile" names them; "ledger verify" and "projection verify --all" say on which side the fault is.',
      { differences: last.differences },
    )
  const says =
    last === null
      ? 'ledgers were never reconciled'
      : `the last was ${durationText(ageMs)} ago, and found nothing`
  return ageMs > reconciliationAgeMaxMs
    ? warning(
        says,
        'See that a process with the role jobs runs: its job reconcile-ledgers does it every day. "ledger reconcile" does it now.',
      )
    : ok(says)
}

/** Pure. */
const backupFinding = (last: RecordedEvent | null, { sinceMs, nowMs }: Instants): Told => {
  const ageMs = nowMs - (last === null ? (sinceMs ?? nowMs) : instantOf(last))
  const says = last === null ? 'the event log knows of none' : `the last was made ${durationText(ageMs)} ago`
  // An empty log has nothing to lose.
  return (last === null && sinceMs !== null) || ageMs > backupAgeMaxMs
    ? warning(
        says,
        'Make one ("backup create"), and have it made every day. Keep SECRET_KEY and KEY_DIR elsewhere than it.',
      )
    : ok(says)
}

const instantOf = ({ metadata, recordedAtMs }: RecordedEvent): number => {
  const { effective_at } = JSON.parse(metadata) as EventMetadata
  return effective_at === undefined ? recordedAtMs : Date.parse(effective_at)
}

const webhooks = async (pool: pg.Pool): Promise<Told | Told[]> => {
  const { count, oldestSeconds, disabled } = await pendingDeliveries(pool)
  const found: Told[] = []
  if (disabled > 0)
    found.push(
      warning(
        `${disabled === 1 ? 'one is' : `${disabled} are`} disabled: nothing succeeded for days, or it answered 410`,
        '"webhook list" names them and why; a "webhook test" that succeeds takes one up again.',
      ),
    )
  if (count > 0 && oldestSeconds * 1_000 > webhookWaitMaxMs)
    found.push(
      warning(
        `${count} messages wait, the oldest for ${durationText(oldestSeconds * 1_000)}`,
        '"webhook list" says which fails. If none does, see that a process with the role jobs runs.',
      ),
    )
  return found.length > 0
    ? found
    : ok(`none is disabled; ${count} ${count === 1 ? 'message waits' : 'messages wait'}`)
}
