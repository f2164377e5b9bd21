import type { Projection } from '../../../projections/projection.ts'
import { inTransaction } from '../../concurrency/transaction.ts'
import type { Position } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { recordOperation } from '../operator-events.ts'
import { type RebuildAsked, rebuild } from './rebuilds.ts'

type ParkedEvent = {
  readonly projection: string
  readonly position: string
  readonly stream: string
  readonly error: string
  readonly parked_at: Date
  /** `parked`: the rows continue without the event until it is retried. `halted`: the rows of the event's stream stop before the event. */
  readonly state: 'parked' | 'halted' | 'released'
  readonly released_by: string | null
  readonly reason: string | null
  /** The event's type according to the log; null if the log no longer contains the event. */
  readonly type: string | null
}

const listedMax = 1_000

/** The first events that were set aside, by projection and position; if a projection is given, only its own. */
export const parkedEvents = async (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  projection: string | null,
): Promise<ParkedEvent[]> => {
  const { rows } = await pool.query<Omit<ParkedEvent, 'type'>>(
    `select projection, position, stream, error, parked_at, released_by, reason,
            case when released_at is null then 'parked' else 'released' end as state
       from parked_events where $1::text is null or projection = $1
     union all
     select projection, position, stream, error, halted_at, null, null, 'halted' from halted_streams
      where $1::text is null or projection = $1
     order by projection, position limit $2`,
    [projection, listedMax],
  )
  const listed: ParkedEvent[] = []
  for (const row of rows)
    listed.push({ ...row, type: (await eventLog.at(BigInt(row.position)))?.type ?? null })
  return listed
}

/** The reason why this release still cannot read an event; null if it can. The projection may be unable to fold an event that can be read. */
export const stillUnreadable = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { position }: Pick<ParkedEvent, 'position'>,
): Promise<string | null> => {
  const event = await eventLog.at(BigInt(position))
  if (event === null) return 'the event log no longer contains it'
  try {
    decodeEvent(event)
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

/**
 * Rebuilds a projection if this release can read every event that was set aside; otherwise, `unreadable` contains the reasons. `left` are the
 * events that are still set aside.
 */
export const retryParked = async (
  foundation: Foundation,
  {
    projection,
    ...asked
  }: { readonly projection: Projection } & Omit<RebuildAsked, 'projections' | 'reason'>,
) => {
  const setAside = async (): Promise<ParkedEvent[]> =>
    (await parkedEvents(foundation, projection.name)).filter(({ state }) => state !== 'released')
  const waiting = await setAside()
  const unreadable: string[] = []
  for (const one of waiting) {
    const why = await stillUnreadable(foundation, one)
    if (why !== null) unreadable.push(`position ${one.position} of ${one.stream}: ${why}`)
  }
  if (waiting.length === 0 || unreadable.length > 0) return { waiting, unreadable, left: waiting }
  // Later events of these streams were folded without the events that were set aside, so only a full rebuild makes the rows
  // correct.
  const reason = 'retry of events that were set aside'
  await rebuild(foundation, { ...asked, projections: [projection], reason })
  return { waiting, unreadable, left: await setAside() }
}

/**
 * Makes a projection skip an event permanently. Throws `CommandRefused` if the projection's rows are about money or access, because
 * these rows must not lack an event.
 */
export const releaseParked = async (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  {
    projection,
    position,
    reason,
    actor,
  }: {
    readonly projection: Projection
    readonly position: Position
    readonly reason: string
    readonly actor: string
  },
): Promise<void> => {
  const { name, money, guards } = projection
  if (money)
    throw new CommandRefused(
      `${name} is about money, so it must not skip an event. Run a release that can read the event, then "projection rebuild ${name}", or acknowledge the fault of the ledger`,
    )
  if (guards === true)
    throw new CommandRefused(
      `${name} decides which calls are allowed, and the event that cannot be read may have revoked access. Run a release that can read it, or revoke the key and issue another one`,
    )
  await inTransaction(pool, async (client) => {
    const { rows } = await client.query<{ stream: string }>(
      `update parked_events set released_at = now(), released_by = $3, reason = $4
        where projection = $1 and position = $2 and released_at is null returning stream`,
      [name, position.toString(), actor, reason],
    )
    const stream = rows[0]?.stream
    if (stream === undefined)
      throw new CommandRefused(`${name} has no event set aside at position ${position}`)
    const data = { projection: name, position: position.toString(), stream, reason }
    await recordOperation(eventLog, { type: 'ParkedEventReleased', data }, { actor })
  })
}
