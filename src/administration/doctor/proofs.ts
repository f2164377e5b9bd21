import type pg from 'pg'
import { type EventLog, type RecordedEvent, StreamMissing } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import { priceBookStream } from '../../events/streams.ts'
import { pendingDeliveries } from '../../webhooks/outbox.ts'
import { type Acts, createActs } from '../acts.ts'
import { type Check, durationText, fault, ok, type Told, warning } from './finding.ts'

/**
 * What is done again and again so that the log can be proved and restored: one list for "doctor" and for the gauges. The alarms of
 * `alerts.yml` have the same bounds.
 */
export type Proof = {
  readonly about: string
  /** Of the gauges: `NAME_age_seconds`, and `NAME_` with what was counted. */
  readonly name: string
  readonly help: string
  /** When it was last done; null: never. */
  readonly doneMs: () => Promise<number | null>
  /** Before the first time it is due, and its age is that of the log. */
  readonly dueAtOnce: boolean
  readonly found: {
    readonly what: 'faults' | 'differences'
    readonly help: string
    readonly labels: readonly string[]
    readonly count: () => Promise<{
      readonly value: number
      readonly labels?: Readonly<Record<string, string>>
    } | null>
    /** What to do where it is not 0. */
    readonly remedy: string
  } | null
  /** Null where no age is too old. */
  readonly bound: {
    readonly warningMs: number
    readonly faultMs: number
    readonly never: string
    readonly remedy: string
  } | null
}

export type Proofs = {
  readonly proofs: readonly Proof[]
  /** When this installation began, by the log's clock; null: the log is empty. */
  readonly begunMs: () => Promise<number | null>
}

const hourMs = 3_600_000
const webhookWaitMaxMs = hourMs

type Sources = {
  readonly eventLog: Pick<EventLog, 'read'>
  /** The last one, with when it was signed. */
  readonly checkpoint: () => Promise<{ readonly at: string } | null>
}

export const proofsOf = ({ eventLog, checkpoint }: Sources): Proofs => {
  const acts = createActs(eventLog, ['LogVerified', 'LedgersReconciled', 'RebuildEnded', 'BackupCreated'])
  const done = (type: string) => async () => {
    const last = await acts.newest(type)
    return last === undefined ? null : instantOf(last)
  }
  const proofs: readonly Proof[] = [
    {
      about: 'checkpoints',
      name: 'checkpoint',
      help: 'Age of the last signed checkpoint of the event log; one is signed every hour',
      doneMs: async () => {
        const last = await checkpoint()
        return last === null ? null : Date.parse(last.at)
      },
      dueAtOnce: false,
      found: null,
      bound: {
        warningMs: 2 * hourMs,
        faultMs: 26 * hourMs,
        never: 'none was ever signed',
        remedy:
          'See that a process with the role jobs runs, and what its job checkpoint says in the log. "event-log checkpoint" signs one now, or says why not.',
      },
    },
    {
      about: 'verification',
      name: 'log_verification',
      help: 'Since the event log was last verified, from where it was verified before; it is done every day',
      doneMs: done('LogVerified'),
      dueAtOnce: false,
      found: {
        what: 'faults',
        help: 'Streams whose hash chain was broken then, and checkpoints the log contradicted: must be 0',
        labels: [],
        count: () => counted(acts, 'LogVerified'),
        remedy:
          'Keep a copy of the database as it is. Then "event-log verify" names the first broken events.',
      },
      bound: {
        warningMs: 50 * hourMs,
        faultMs: Number.POSITIVE_INFINITY,
        never: 'the event log was never verified',
        remedy: 'See that a process with the role jobs runs: its job verify-log does it every day.',
      },
    },
    {
      about: 'reconciliation',
      name: 'reconciliation',
      help: 'Since ledgers were last compared with read models and tariff',
      doneMs: done('LedgersReconciled'),
      dueAtOnce: false,
      found: {
        what: 'differences',
        help: 'What differed then: must be 0',
        labels: [],
        count: () => counted(acts, 'LedgersReconciled'),
        remedy:
          '"ledger reconcile" names them; "ledger verify" and "projection verify --all" say on which side the fault is.',
      },
      bound: {
        warningMs: 48 * hourMs,
        faultMs: Number.POSITIVE_INFINITY,
        never: 'ledgers were never reconciled',
        remedy:
          'See that a process with the role jobs runs: its job reconcile-ledgers does it every day. "ledger reconcile" does it now.',
      },
    },
    {
      about: 'rebuild',
      name: 'rebuild',
      help: 'Since the last rebuild ended, whatever its result',
      doneMs: done('RebuildEnded'),
      dueAtOnce: false,
      found: {
        what: 'differences',
        help: 'Figures of money that were not what the replaced rows said, of the last rebuild, by its result',
        labels: ['result'],
        count: () => counted(acts, 'RebuildEnded'),
        remedy: '"projection verify --all" names them.',
      },
      bound: null,
    },
    {
      about: 'backup',
      name: 'backup',
      help: 'Since the last backup that the event log knows of; before the first, since the log began',
      doneMs: done('BackupCreated'),
      dueAtOnce: true,
      found: null,
      bound: {
        warningMs: 48 * hourMs,
        faultMs: Number.POSITIVE_INFINITY,
        never: 'none was ever made',
        remedy:
          'Make one ("backup create"), and have it made every day. Keep SECRET_KEY and KEY_DIR elsewhere than it.',
      },
    },
  ]
  return { proofs, begunMs: begun(eventLog) }
}

const counted: (acts: Acts, type: string) => ReturnType<NonNullable<Proof['found']>['count']> = async (
  acts,
  wanted,
) => {
  const last = await acts.newest(wanted)
  if (last === undefined) return null
  const { type, data } = decodeEvent(last)
  if (type === 'LogVerified') return { value: data.faults }
  if (type === 'LedgersReconciled') return { value: data.differences }
  return type === 'RebuildEnded' ? { value: data.differences, labels: { result: data.result } } : null
}

/** When this installation began, by the log's clock: its first event is a price book, which is in force since long before. */
const begun = (eventLog: Pick<EventLog, 'read'>): Proofs['begunMs'] => {
  let known: number | null = null
  return async () => {
    if (known !== null) return known
    const [first] = await eventLog.read(priceBookStream, { max: 1 }).catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
    known = first?.recordedAtMs ?? null
    return known
  }
}

/** Of what an event says that was done. A copied log keeps that, and not when it was recorded. */
const instantOf = ({ metadata, recordedAtMs }: RecordedEvent): number => {
  const { effective_at } = JSON.parse(metadata) as EventMetadata
  return effective_at === undefined ? recordedAtMs : Date.parse(effective_at)
}

export const proofChecks = (sources: Sources): readonly Check[] => {
  const { proofs, begunMs } = proofsOf(sources)
  return proofs.flatMap((proof) => {
    const { about, bound } = proof
    return bound === null ? [] : [{ about, look: () => look(proof, bound, begunMs) }]
  })
}

const look = async (
  { doneMs, dueAtOnce, found }: Proof,
  { warningMs, faultMs, never, remedy }: NonNullable<Proof['bound']>,
  begunMs: Proofs['begunMs'],
): Promise<Told> => {
  const [done, since, count] = await Promise.all([doneMs(), begunMs(), found?.count()])
  const ageMs = Date.now() - (done ?? since ?? Date.now())
  const ago = durationText(ageMs)
  if (found !== null && count != null && count.value > 0)
    return fault(`the last, ${ago} ago, found ${count.value} ${found.what}`, found.remedy, {
      [found.what]: count.value,
    })
  const says =
    done === null
      ? `${never}${since === null ? '' : `, and the event log is ${ago} old`}`
      : `the last was ${ago} ago${found === null ? '' : ', and found nothing'}`
  if (ageMs > faultMs) return fault(says, remedy)
  // An empty log has nothing to lose.
  const isDue = ageMs > warningMs || (dueAtOnce && done === null && since !== null)
  return isDue ? warning(says, remedy) : ok(says)
}

export const webhooksCheck = (pool: pg.Pool): Check => ({ about: 'webhooks', look: () => webhooks(pool) })

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
