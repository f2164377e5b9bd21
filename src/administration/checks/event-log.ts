import { projections } from '../../../projections/index.ts'
import type { Config } from '../../config.ts'
import { type EventLog, logStart } from '../../event-log/port.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { signerOf } from '../../event-log/tree/signed-note.ts'
import { createSigningKeyFiles } from '../../event-log/tree/signing-key.ts'
import type { LogCheckpointed, SigningKeyAnnounced } from '../../events/checkpoints.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import { checkpointStream, priceBookStream } from '../../events/streams.ts'
import { keyDirOf } from '../../foundation/data-dir.ts'
import { wrappedKeyIn, wrongKeyText } from '../../foundation/installation-key.ts'
import { telling } from '../../foundation/open-event-log.ts'
import { knownEventLog, mayAppend, nameOfEventLog } from '../../foundation/own-event-log.ts'
import { knownSecretKeysOf } from '../../foundation/secret-key.ts'
import { createEpochKeyFiles } from '../../guard/secrets/epoch-key-files.ts'
import { openEpochKeys } from '../../guard/secrets/epoch-keys.ts'
import { openSlots } from '../../guard/secrets/installation-key.ts'
import { type Acts, createActs } from '../acts.ts'
import type { ProjectionLag } from '../projections/projections.ts'
import { listEpochKeys } from '../secrets/epoch-keys.ts'
import { type Check, durationText, type Found, fine, measured, reasonOf, wrong } from './check.ts'
import type { InDatabase } from './database.ts'

/** Checks of the event log, of the rows and keys that belong to it, and of recurring work such as checkpoints and backups. */

export type InLog = InDatabase & {
  readonly config: Config
  readonly eventLog: EventLog
  readonly acts: Acts
  readonly projectionLags: () => Promise<readonly ProjectionLag[]>
  /** Whether to run checks that are too expensive to run every second. */
  readonly thorough: boolean
}

const hour = 3_600
/** In seconds. Rows with a longer lag are not shown as current. */
export const lagSecondsMax = 60

export const eventLogCheck: Check<InLog> = {
  name: 'event log',
  severity: 'fault',
  advice:
    'If the event log is in PostgreSQL, see "database". Otherwise check that EventStoreDB is running, and that EVENT_LOG_URL contains its address and a user who can read and append ("event-log prepare" creates one). Until it answers, calls get 503.',
  advisesUnseen: true,
  readiness: { name: 'event_log', counts: 'always' },
  look: async ({ config, pool, eventLog, thorough }) => {
    const name = nameOfEventLog(config)
    const named = { variable: 'EVENT_LOG_URL', url: config.EVENT_LOG_URL ?? 'postgres' }
    try {
      return await telling(named, async () => {
        const head = await eventLog.head()
        const last = head === logStart ? null : await eventLog.at(head)
        const known = thorough ? await knownEventLog(pool) : undefined
        if (known !== undefined && known !== name)
          return wrong(`the read models were folded from ${known}, but the event log is ${name}`, {
            advice:
              'Set EVENT_LOG_URL to the log they belong to, or copy that log with "event-log copy" and run "projection rebuild --all".',
          })
        // Appends an event that already exists. Nothing is written, but the append is refused if the service may not write.
        if (thorough && config.EVENT_LOG_URL !== undefined) await mayAppend(eventLog)
        const age =
          last === null ? '' : `, the last event ${durationText(Date.now() - last.recordedAtMs)} ago`
        return fine(`${name}, at position ${head}${age}`, { position: head.toString() })
      })
    } catch (error) {
      throw new Error(`${name}: ${reasonOf(error)}`, { cause: error })
    }
  },
}

/** Checks the lag of rows behind the log, and the age of the last recurring work. */
export const logChecks: readonly Check<InLog>[] = [
  {
    name: 'projections',
    severity: 'fault',
    bound: { unit: 'seconds', fault: lagSecondsMax },
    advice:
      'Check that a process with the role "projector" is running, and read its log. "projection list" shows how far each projection is.',
    readiness: { name: 'projections', counts: 'where rows are shown' },
    gauges: {
      projection_lag_positions:
        "How far its rows are behind the event log, in the log's positions: events in PostgreSQL, bytes in EventStoreDB",
      projection_lag_seconds: 'Age of the oldest event that is not in its rows',
      projection_halted: '1 if it has stopped until it is rebuilt',
      projection_halted_streams: 'Streams whose rows stopped at an event that the projection cannot fold',
    },
    labels: ['projection'],
    look: async ({ projectionLags }) => {
      const lags = await projectionLags()
      const by = (value: (lag: ProjectionLag) => number) =>
        lags.map((lag) => ({ labels: { projection: lag.name }, value: value(lag) }))
      const halted = lags.filter(({ state }) => state === 'halted').map(({ name }) => name)
      const streams = lags.flatMap(({ haltedStreams }) => haltedStreams.map(({ stream }) => stream))
      const seconds = Math.max(0, ...lags.map((lag) => lag.seconds))
      return {
        found: rowsFound(lags, seconds),
        samples: {
          projection_lag_positions: by(({ behind }) => Number(behind)),
          projection_lag_seconds: by((lag) => lag.seconds),
          projection_halted: by(({ state }) => (state === 'halted' ? 1 : 0)),
          projection_halted_streams: by(({ haltedStreams }) => haltedStreams.length),
        },
        ready: seconds > lagSecondsMax || halted.length > 0 ? 'fault' : streams.length > 0 ? 'warning' : 'ok',
        details: {
          lag_seconds: Math.round(seconds * 1_000) / 1_000,
          ...(halted.length === 0 ? {} : { halted }),
          ...(streams.length === 0 ? {} : { halted_streams: [...new Set(streams)] }),
        },
      }
    },
  },
  {
    name: 'events set aside',
    severity: 'warning',
    advice:
      '"projection parked" shows them with their errors; "projection retry" folds them if this release can read them.',
    gauges: {
      parked_events:
        'Events that a projection has set aside because it cannot fold them, 1,000 at most; guards: whether its rows decide which calls are allowed',
    },
    labels: ['projection', 'guards'],
    look: async ({ projectionLags }) => {
      const lags = await projectionLags()
      const all = projections.map(({ name, guards = false }) => {
        const parked = lags.find((lag) => lag.name === name)?.parked ?? 0
        return { name, guards, parked }
      })
      const some = all.filter(({ parked }) => parked > 0)
      return {
        found:
          some.length === 0
            ? fine('none')
            : some.map(({ name, guards, parked }) =>
                wrong(`${name}: ${parked}`, { severity: guards ? 'fault' : 'warning' }),
              ),
        samples: {
          parked_events: all.map(({ name, guards, parked }) => ({
            labels: { projection: name, guards: guards ? 'yes' : 'no' },
            value: parked,
          })),
        },
      }
    },
  },
  proof({
    name: 'checkpoints',
    gauge: 'checkpoint',
    bound: { unit: 'seconds', warning: 2 * hour, fault: 26 * hour },
    advice:
      'Check that a process with the role "jobs" is running, and see what its "checkpoint" job logs. "event-log checkpoint" signs one now, or shows why it cannot.',
    last: async ({ eventLog }) => {
      const { checkpoint } = await newestOfCheckpoints(eventLog)
      return checkpoint === null ? null : { doneMs: Date.parse(checkpoint.at), count: 0 }
    },
  }),
  proof({
    name: 'verification',
    gauge: 'log_verification',
    what: 'faults',
    bound: { unit: 'seconds', warning: 50 * hour },
    advice:
      'After faults, keep a copy of the database as it is; then "event-log verify" shows the first broken events. If the verification is late, check that a process with the role "jobs" is running: its "verify-log" job verifies the log.',
    last: ({ acts }) => lastAct(acts, 'LogVerified'),
  }),
  proof({
    name: 'reconciliation',
    gauge: 'reconciliation',
    what: 'differences',
    bound: { unit: 'seconds', warning: 48 * hour },
    advice:
      '"ledger reconcile" reconciles now and shows the differences; "ledger verify" and "projection verify --all" show on which side the fault is. The job is "reconcile-ledgers".',
    last: ({ acts }) => lastAct(acts, 'LedgersReconciled'),
  }),
  proof({
    name: 'rebuild',
    gauge: 'rebuild',
    what: 'differences',
    toldSeconds: 7 * 24 * hour,
    advice:
      'The event RebuildEnded contains the figures. Inform the organizations that saw them, and find out who changed the rows.',
    last: ({ acts }) => lastAct(acts, 'RebuildEnded'),
  }),
  proof({
    name: 'backup',
    gauge: 'backup',
    bound: { unit: 'seconds', warning: 48 * hour },
    advice:
      'Make a backup ("backup create"), and schedule one every day. Keep SECRET_KEY and KEY_DIR in a different place.',
    last: ({ acts }) => lastAct(acts, 'BackupCreated'),
  }),
]

/** Only "doctor" runs these checks, because they open keys. */
export const keyChecks: readonly Check<InLog>[] = [
  {
    name: 'SECRET_KEY',
    severity: 'fault',
    advice:
      'Set SECRET_KEY, or the file secret_key in DATA_DIR, to the previous value. Without it, issued keys do not work, and profiles cannot be opened.',
    look: async ({ config, eventLog }) => {
      const wrapped = await wrappedKeyIn(eventLog)
      if (wrapped === null) return fine('there is no installation key yet; the first start creates one')
      const open = openSlots(wrapped.slots, (await knownSecretKeysOf(config)) ?? [])
      if (open === null) return wrong(wrongKeyText(wrapped))
      if (wrapped.slots.length === 1) return fine(`${open.by.id} opens the installation key`)
      const names = wrapped.slots.map(({ secret_key }) => secret_key)
      return wrong(`SECRET_KEY is being rotated: processes start with ${names.join(' or ')}`, {
        severity: 'warning',
        advice: `Once every process is running with ${names.at(-1)}, run "secrets rotate --finish".`,
      })
    },
  },
  {
    name: 'epoch keys',
    severity: 'fault',
    advice:
      'Mount or restore the directory. If a key is lost for good, "epoch-key abandon" gives up the data sealed under it.',
    look: epochKeys,
  },
  {
    name: 'signing key',
    severity: 'fault',
    advice: 'Put the copy of that file back. If there is no copy, run "event-log announce-key --reason …".',
    look: async ({ config, eventLog }) => {
      const files = createSigningKeyFiles({ dir: keyDirOf(config), makeDir: async () => undefined })
      try {
        const { announced, checkpoint } = await newestOfCheckpoints(eventLog)
        const present = files.present()
        if (announced === null && checkpoint === null)
          return fine('no key is announced yet; the first checkpoint announces one')
        const key =
          announced === null
            ? checkpoint && signerOf(checkpoint.note, checkpoint.origin, present)
            : present.find(({ id }) => id === announced.key_id)
        return key
          ? fine(`${key.id}, as announced by the event log`)
          : wrong(
              `${files.path} does not contain the last key that the event log announced: no checkpoint can be signed`,
            )
      } catch (error) {
        return wrong(reasonOf(error), {
          advice: 'Run "event-log verify": it names what is wrong with the checkpoints.',
        })
      }
    },
  },
]

/** The operators' acts that these checks read. */
export const actsIn = (eventLog: Pick<EventLog, 'read'>): Acts =>
  createActs(eventLog, ['LogVerified', 'LedgersReconciled', 'RebuildEnded', 'BackupCreated'])

type Last = { readonly doneMs: number; readonly count: number; readonly result?: string }

/**
 * A check of recurring work. It reports the time since the last run and the findings of that run. Before the first run, it reports
 * the age of the log.
 */
function proof({
  gauge,
  what,
  toldSeconds = Number.POSITIVE_INFINITY,
  last,
  ...check
}: Pick<Check<InLog>, 'name' | 'bound' | 'advice'> & {
  /** The gauges are `NAME_age_seconds` and `NAME_WHAT`. */
  readonly gauge: string
  readonly what?: 'faults' | 'differences'
  /** How long the findings are reported. */
  readonly toldSeconds?: number
  readonly last: (on: InLog) => Promise<Last | null>
}): Check<InLog> {
  const age = `${gauge}_age_seconds`
  const count = `${gauge}_${what}`
  return {
    ...check,
    severity: 'fault',
    gauges: {
      [age]: `Seconds since the last ${check.name} in the event log; before the first, since the log began`,
      ...(what === undefined ? {} : { [count]: `Result of the last ${check.name}: must be 0` }),
    },
    labels: ['result'],
    look: async (on) => {
      const done = await last(on)
      const sinceMs = done?.doneMs ?? (await begunMs(on.eventLog)) ?? Date.now()
      const seconds = Math.max(0, Date.now() - sinceMs) / 1_000
      const ago = `${durationText(seconds * 1_000)} ago`
      const labels = done?.result === undefined ? {} : { labels: { result: done.result } }
      return {
        found:
          done !== null && done.count > 0 && seconds < toldSeconds
            ? wrong(`the last, ${ago}, found ${done.count} ${what}`, { figures: { [`${what}`]: done.count } })
            : measured(
                seconds,
                done === null ? `none yet; the event log began ${ago}` : `the last was ${ago}`,
              ),
        samples: {
          [age]: [{ value: seconds }],
          [count]: done === null ? [] : [{ ...labels, value: done.count }],
        },
      }
    },
  }
}

/** The time when the installation began, by the log's clock. The first event is a price book whose effective date is much earlier. */
async function begunMs(eventLog: Pick<EventLog, 'read'>): Promise<number | null> {
  const [first] = await readIfAny(eventLog, priceBookStream, { max: 1 })
  return first?.recordedAtMs ?? null
}

async function lastAct(acts: Acts, wanted: string): Promise<Last | null> {
  const recorded = await acts.newest(wanted)
  if (recorded === undefined) return null
  // If a log is copied, `effective_at` stays the same, but the recording time changes.
  const { effective_at } = JSON.parse(recorded.metadata) as EventMetadata
  const doneMs = effective_at === undefined ? recorded.recordedAtMs : Date.parse(effective_at)
  const { type, data } = decodeEvent(recorded)
  if (type === 'LogVerified') return { doneMs, count: data.faults }
  if (type === 'LedgersReconciled') return { doneMs, count: data.differences }
  return type === 'RebuildEnded'
    ? { doneMs, count: data.differences, result: data.result }
    : { doneMs, count: 0 }
}

/** A new key or a new tree is announced right before its first checkpoint, so a few events are enough. */
const checkpointsMax = 20

/**
 * The last checkpoint, and the key announced after it, if any. Signatures are not checked here, because "event-log verify" checks
 * all of them.
 */
async function newestOfCheckpoints(eventLog: Pick<EventLog, 'read'>): Promise<{
  readonly announced: SigningKeyAnnounced | null
  readonly checkpoint: (LogCheckpointed & { readonly at: string }) | null
}> {
  const options = { direction: 'backwards', max: checkpointsMax } as const
  let announced: SigningKeyAnnounced | null = null
  for (const recorded of await readIfAny(eventLog, checkpointStream, options)) {
    const { type, data, metadata } = decodeEvent(recorded)
    if (type === 'SigningKeyAnnounced') announced ??= data
    if (type === 'LogCheckpointed') return { announced, checkpoint: { ...data, at: metadata.recorded_at } }
  }
  return { announced, checkpoint: null }
}

function rowsFound(lags: readonly ProjectionLag[], seconds: number): Found[] {
  if (lags.length < projections.length)
    return [
      wrong(`${projections.length - lags.length} of ${projections.length} have no rows yet`, {
        severity: 'warning',
        advice: 'Start a process with the role "projector".',
      }),
    ]
  const latest = lags.filter((lag) => lag.seconds === seconds).map(({ name }) => name)
  const stopped = lags.flatMap(({ name, state, error, haltedStreams }) => {
    const advice = `"projection parked ${name}" shows the event. Run a release that can read it, then "projection retry ${name}" or "projection rebuild ${name}".`
    const [first] = haltedStreams
    return [
      ...(state === 'halted'
        ? [wrong(`${name} is halted: ${reasonOf(error ?? 'no reason was recorded')}`, { advice })]
        : []),
      ...(first === undefined
        ? []
        : [
            wrong(
              `${name}: the rows of ${haltedStreams.length} ledgers have stopped, first those of ${first.stream}`,
              {
                advice,
              },
            ),
          ]),
    ]
  })
  const whose = seconds > lagSecondsMax ? latest.join(', ') : 'rows'
  return [...stopped, measured(seconds, `${whose}: ${durationText(seconds * 1_000)} behind the event log`)]
}

async function epochKeys({ config, pool, eventLog }: InLog): Promise<Found | Found[]> {
  const dir = keyDirOf(config)
  const wrapped = await wrappedKeyIn(eventLog)
  const open = openSlots(wrapped?.slots ?? [], (await knownSecretKeysOf(config)) ?? [])
  // If the installation key cannot be opened, the check of SECRET_KEY reports it.
  if (open === null) return []
  const files = createEpochKeyFiles({ dir, makeDir: async () => undefined, secretKey: open.key })
  const logger = { info: () => undefined, error: () => undefined }
  const keys = await listEpochKeys({ epochKeys: openEpochKeys({ pool, files, clock: Date, logger }) })
  const found = keys.flatMap(({ id, state, destroyedByMs }): Found[] => {
    if (state === 'lost') return [wrong(`the key ${id}, which seals personal data, is not in ${dir}`)]
    if (state === 'destroyed' || destroyedByMs >= Date.now()) return []
    const advice =
      'Check that a process with the role "jobs" is running: its "renew-seals" job destroys the key.'
    const by = new Date(destroyedByMs).toISOString()
    return [wrong(`the key ${id} should have been destroyed by ${by}`, { severity: 'warning', advice })]
  })
  const current = keys.find(({ state }) => state === 'in use')
  return found.length > 0 ? found : fine(`in use: ${current?.id ?? 'none yet'}`)
}
