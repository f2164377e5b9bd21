import type pg from 'pg'
import { projections } from '../../projections/index.ts'
import type { Meters } from '../call/capability.ts'
import { type EventLog, type RecordedEvent, StreamMissing } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import type { EventMetadata } from '../events/envelope.ts'
import { priceBookStream } from '../events/streams.ts'
import { type Acts, createActs } from './acts.ts'
import { parkedCounts } from './parked.ts'

/**
 * What is measured of the installation rather than of a process: what the event log says that was done, and what rows say that was
 * left undone. Every process tells the same, so that an alarm needs no certain one of them. What cannot be asked is told as it was last known, see `meters.ts`.
 */

/** Rows are looked at this often however many ask: what they say changes by the minute. */
const rememberedMs = 10_000

const told = ['LogVerified', 'LedgersReconciled', 'RebuildEnded', 'BackupCreated'] as const

type Parts = { readonly eventLog: Pick<EventLog, 'read'>; readonly pool: Pick<pg.Pool, 'query'> }

export const meterInstallation = (meters: Meters, { eventLog, pool }: Parts): void => {
  const acts = createActs(eventLog, told)
  meterVerification(meters, acts)
  meterReconciliation(meters, acts)
  meterRebuilds(meters, acts)
  meterBackups(meters, acts, eventLog)
  const parked = remembered(() => parkedCounts(pool))
  meters.gauge(
    {
      name: 'parked_events',
      help: 'Events that a projection has set aside because it cannot take them, 1,000 at most; guards: whether its rows tell who may call',
      labels: ['projection', 'guards'],
    },
    async () => {
      const counts = await parked()
      return projections.map(({ name, guards = false }) => ({
        labels: { projection: name, guards: guards ? 'yes' : 'no' },
        value: counts.get(name) ?? 0,
      }))
    },
  )
}

const secondsSince = (atMs: number): number => Math.max(0, (Date.now() - atMs) / 1_000)

/** Of what an event says that was done. A copied log keeps that, and not when it was recorded. */
const ageSeconds = ({ metadata }: RecordedEvent): number =>
  secondsSince(Date.parse((JSON.parse(metadata) as EventMetadata).effective_at))

const meterVerification = (meters: Meters, acts: Acts): void => {
  const name = 'log_verification'
  meters.gauge(
    {
      name: `${name}_age_seconds`,
      help: 'Since the event log was last verified, from where it was verified before; it is done every day',
    },
    async () => {
      const last = await acts.newest('LogVerified')
      return last === undefined ? [] : [{ value: ageSeconds(last) }]
    },
  )
  meters.gauge(
    {
      name: `${name}_faults`,
      help: 'Streams whose hash chain was broken then, and checkpoints the log contradicted: must be 0',
    },
    async () => {
      const last = await acts.newest('LogVerified')
      if (last === undefined) return []
      const { type, data } = decodeEvent(last)
      return type === 'LogVerified' ? [{ value: data.faults }] : []
    },
  )
}

const meterReconciliation = (meters: Meters, acts: Acts): void => {
  const name = 'reconciliation'
  meters.gauge(
    { name: `${name}_age_seconds`, help: 'Since ledgers were last compared with read models and tariff' },
    async () => {
      const last = await acts.newest('LedgersReconciled')
      return last === undefined ? [] : [{ value: ageSeconds(last) }]
    },
  )
  meters.gauge({ name: `${name}_differences`, help: 'What differed then: must be 0' }, async () => {
    const last = await acts.newest('LedgersReconciled')
    if (last === undefined) return []
    const { type, data } = decodeEvent(last)
    return type === 'LedgersReconciled' ? [{ value: data.differences }] : []
  })
}

const meterRebuilds = (meters: Meters, acts: Acts): void => {
  meters.gauge(
    { name: 'rebuild_age_seconds', help: 'Since the last rebuild ended, whatever its result' },
    async () => {
      const last = await acts.newest('RebuildEnded')
      return last === undefined ? [] : [{ value: ageSeconds(last) }]
    },
  )
  meters.gauge(
    {
      name: 'rebuild_differences',
      help: 'Figures of money that were not what the replaced rows said, of the last rebuild, by its result',
      labels: ['result'],
    },
    async () => {
      const last = await acts.newest('RebuildEnded')
      if (last === undefined) return []
      const { type, data } = decodeEvent(last)
      return type === 'RebuildEnded' ? [{ labels: { result: data.result }, value: data.differences }] : []
    },
  )
}

/** When it was recorded: the first event of an installation is a price book, which is in force since long before. */
const begunAtMs = async (eventLog: Pick<EventLog, 'read'>): Promise<number | undefined> => {
  const [first] = await eventLog.read(priceBookStream, { max: 1 }).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  return first?.recordedAtMs
}

const meterBackups = (meters: Meters, acts: Acts, eventLog: Pick<EventLog, 'read'>): void => {
  let begunMs: number | undefined
  meters.gauge(
    {
      name: 'backup_age_seconds',
      help: 'Since the last backup that the event log knows of; before the first, since the log began',
    },
    async () => {
      const last = await acts.newest('BackupCreated')
      if (last !== undefined) return [{ value: ageSeconds(last) }]
      begunMs ??= await begunAtMs(eventLog)
      return begunMs === undefined ? [] : [{ value: secondsSince(begunMs) }]
    },
  )
}

/** One question at a time, and none for some seconds after its answer. A question that failed is asked again. */
const remembered = <Value>(look: () => Promise<Value>): (() => Promise<Value>) => {
  let last: Promise<Value> | undefined
  let untilMs = 0
  return () => {
    if (last !== undefined && performance.now() < untilMs) return last
    untilMs = Number.POSITIVE_INFINITY
    const asked = look()
    last = asked
    asked.then(
      () => {
        untilMs = performance.now() + rememberedMs
      },
      () => {
        untilMs = 0
      },
    )
    return asked
  }
}
