/** Metrics of the installation: the age and the findings of its newest checks, and overdue work. */
import pg from 'pg'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { createActs } from '../../src/administration/acts.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import { ledgerStream, operatorStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { verifyLogOnward } from '../../src/jobs/own-jobs.ts'
import { createHealth } from '../../src/metrics/health.ts'
import { createMetrics, type Metrics } from '../../src/metrics/metrics.ts'
import { houseForFile, places } from '../support/house.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'
import { changeEvent } from '../support/segments.ts'
import { eventually } from '../support/service.ts'
import { takesAtMost } from '../support/takes-at-most.ts'
import { samples } from './samples.ts'

const logger = pino({ level: 'silent' })
const verdicts = ['log_verification_faults', 'reconciliation_differences', 'rebuild_differences']

const house = await houseForFile()
type Parts = Pick<Foundation, 'pool' | 'eventLog'>

const meter = ({ meters }: Metrics, parts: Parts): void =>
  createHealth({ ...house.foundation, ...parts, config: house.config }).meter(meters)

const samplesNow = async (name: string, parts: Parts = house.foundation) => {
  const metrics = createMetrics()
  meter(metrics, parts)
  return samples(await metrics.text(), name)
}

/** A figure is left out if its check takes longer than a second. */
const samplesOf = (name: string, parts?: Parts) =>
  eventually(async () => {
    const found = await samplesNow(name, parts)
    return Object.keys(found).length > 0 ? found : undefined
  })

const atFirst: Record<string, unknown>[] = await Promise.all(verdicts.map((name) => samplesNow(name)))
const ageAtFirst = (await samplesOf('backup_age_seconds'))['']

test('before anything is done, the only figure is the age of the log', () => {
  expect(atFirst).toEqual(verdicts.map(() => ({})))
  // The price book in the first event has been in force for years, but its age is not the log's age.
  expect(ageAtFirst).toBeGreaterThanOrEqual(0)
  expect(ageAtFirst).toBeLessThan(3_600)
})

test('shows whether the log is sound or an event in it was changed', async () => {
  const { foundation } = house
  const partner = await house.partner({ credits: '9' })
  await house.lookup(partner, { ip: places.london })
  expect(await verifyLogOnward(foundation, logger)).toBe(0)
  expect(await samplesOf('log_verification_faults')).toEqual({ '': 0 })
  expect((await samplesOf('log_verification_age_seconds'))['']).toBeLessThan(60)
  const owner = new pg.Client({ connectionString: house.config.DATABASE_MIGRATION_URL })
  await owner.connect()
  await changeEvent(owner, { stream: ledgerStream(partner.organizationId), revision: 1 }, ({ data }) => ({
    data: data.replace('"9"', '"90"'),
  }))
  await owner.end()
  const logged: string[] = []
  const fatalLogger = pino({ level: 'fatal' }, { write: (line) => void logged.push(line) })
  expect(await verifyLogOnward(foundation, fatalLogger)).toBe(1)
  expect(await samplesOf('log_verification_faults')).toEqual({ '': 1 })
  expect(logged.join()).toContain(`${ledgerStream(partner.organizationId)} revision 1`)
})

test('parked events are counted by projection and by whether its rows authorize keys', async () => {
  const { foundation } = house
  expect((await samplesOf('parked_events'))['{projection="api_keys",guards="yes"}']).toBe(0)
  await house.query(
    `insert into parked_events (projection, position, stream, error)
     select 'api_keys', n, 'key-x', 'test' from generate_series(1, 3) n`,
  )
  const counts = await samplesOf('parked_events')
  expect(counts['{projection="api_keys",guards="yes"}']).toBe(3)
  expect(counts['{projection="accounts",guards="no"}']).toBe(0)
  await house.query(`update parked_events set released_at = now() where position = 1`)
  expect((await samplesOf('parked_events', foundation))['{projection="api_keys",guards="yes"}']).toBe(2)
  await house.query(`delete from parked_events`)
})

test('a figure that takes longer than a second is left out, and the others are written', async () => {
  const { eventLog, pool } = house.foundation
  const silent: EventLog = { ...eventLog, read: () => new Promise(() => undefined) }
  const metrics = createMetrics()
  meter(metrics, { eventLog: silent, pool })
  const text = await takesAtMost(5_000, metrics.text())
  expect(samples(text, 'log_verification_faults')).toEqual({})
  expect(Object.keys(samples(text, 'parked_events')).length).toBeGreaterThan(3)
  const broken = { query: () => Promise.reject(new Error('away')) } as unknown as typeof pool
  expect(await samplesNow('parked_events', { eventLog, pool: broken })).toEqual({})
})

test('the newest acts are found among any number of others, and each check reads only new events', async () => {
  const inner = createMemoryEventLog().client('a')
  const reads: unknown[] = []
  const eventLog: EventLog = {
    ...inner,
    read: async (stream, options) => {
      const page = await inner.read(stream, options)
      reads.push(page.length)
      return page
    },
  }
  const act = async (type: 'RebuildRequested' | 'ParkedEventReleased', n: number): Promise<void> => {
    const data =
      type === 'RebuildRequested'
        ? { type, data: { projections: ['x'], reason: `${n}` } }
        : { type, data: { projection: 'x', position: '1', stream: 'y', reason: `${n}` } }
    const id = eventIdOf(operatorStream, `act/${n}`, 0)
    await appendNext(inner, operatorStream, [
      encodeEvent(data, { id, actor: 'system', effectiveAt: new Date().toISOString() }),
    ])
  }
  const acts = createActs(eventLog, ['RebuildRequested'])
  expect(await acts.newest('RebuildRequested')).toBeUndefined()
  await act('RebuildRequested', 0)
  for (let n = 1; n <= 5_500; n++) await act('ParkedEventReleased', n)
  expect((await createActs(eventLog, ['RebuildRequested']).newest('RebuildRequested'))?.revision).toBe(0)
  expect((await acts.newest('RebuildRequested'))?.revision).toBe(0)
  reads.length = 0
  expect((await acts.newest('RebuildRequested'))?.revision).toBe(0)
  expect(reads).toEqual([0])
  await act('RebuildRequested', 5_501)
  expect((await acts.newest('RebuildRequested'))?.revision).toBe(5_501)
  expect((await createActs(eventLog, ['RebuildRequested']).newest('RebuildRequested'))?.revision).toBe(5_501)
})
