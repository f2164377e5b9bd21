import type pg from 'pg'
import { type Check, durationText, fault, ok, type Told, warning } from './finding.ts'

/**
 * Whether the clocks agree: this host's, the database's, and those of the api processes. Expiries, sessions and epochs are judged by the
 * clock of a process; leases and heartbeats by the database's.
 */

/** Clocks that are kept by NTP differ by less. */
const differenceMaxMs = 2_000
/** From here on the job that ends epochs refuses to run. */
const differenceFaultMs = 15 * 60_000

const remedy = 'Have the clock kept by NTP on every host: timedatectl set-ntp true, or chrony.'

type ClockOfProcess = {
  readonly host: string
  readonly pid: number
  /** Null: its release does not say. */
  readonly clockAheadMs: number | null
}

/** `live`: the api processes that live, with what they say of their clocks. */
export const clockCheck = (
  pool: Pick<pg.Pool, 'query'>,
  live: () => Promise<readonly ClockOfProcess[]>,
): Check => ({
  about: 'clocks',
  look: async () => {
    const {
      rows: [row],
      askedMs,
      toldMs,
    } = await asked(pool)
    // Between the question and its answer: what the way took is no difference.
    const ahead = aheadOf(Number(row?.now_ms), askedMs, toldMs)
    const processes = await live()
    const found = [
      ...told("this host's clock", ahead),
      ...processes.flatMap(({ host, pid, clockAheadMs }) =>
        clockAheadMs === null ? [] : told(`the clock of process ${pid} on ${host}`, clockAheadMs),
      ),
    ]
    const known = processes.filter(({ clockAheadMs }) => clockAheadMs !== null).length
    const others = known === 0 ? '' : `, and of ${known} api ${known === 1 ? 'process' : 'processes'}`
    return found.length > 0
      ? found
      : ok(`this host's clock${others} within ${durationText(differenceMaxMs)} of the database's`, {
          ahead_ms: Math.round(ahead),
        })
  },
})

const asked = async (pool: Pick<pg.Pool, 'query'>) => {
  // The first question may have to connect.
  await pool.query('select 1')
  const askedMs = Date.now()
  const { rows } = await pool.query<{ now_ms: string }>(
    'select extract(epoch from clock_timestamp()) * 1000 as now_ms',
  )
  return { rows, askedMs, toldMs: Date.now() }
}

/** How far this host is ahead of a clock that was read some time between two instants; 0 where that explains it. */
const aheadOf = (otherMs: number, askedMs: number, toldMs: number): number => {
  if (otherMs < askedMs) return askedMs - otherMs
  return otherMs > toldMs ? toldMs - otherMs : 0
}

/** Pure. */
const told = (whose: string, aheadMs: number): Told[] => {
  const says = `${whose} is ${durationText(aheadMs)} ${aheadMs > 0 ? 'ahead of' : 'behind'} the database's`
  if (Math.abs(aheadMs) >= differenceFaultMs)
    return [fault(`${says}: no epoch key is destroyed meanwhile`, remedy)]
  return Math.abs(aheadMs) > differenceMaxMs ? [warning(says, remedy)] : []
}
