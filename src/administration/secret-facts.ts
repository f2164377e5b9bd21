import { logStart, type Position, type RecordedEvent } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { KnownSecretKey, PlaceOfKey } from '../foundation/secret-ring.ts'
import type { Counted, DependingOn, KeyedUse } from '../guard/keyed-use.ts'
import { RunChanged, readRun } from '../ledger/rerate-run.ts'

/**
 * Events that name an address, a request or a person by a hash under a SECRET_KEY, and never change: what is asked about them
 * later is compared under it.
 */
export const recordedFacts = (
  foundation: Pick<Foundation, 'pool' | 'eventLog'>,
  known: readonly KnownSecretKey[],
): KeyedUse => ({
  name: 'facts of the event log',
  fate: 'kept',
  under: async (keys) =>
    new Map(
      await Promise.all(
        keys.map(async ({ id }): Promise<[string, Counted]> => {
          const key = known.find((one) => one.id === id)
          return [id, key === undefined ? { count: 0, more: false } : await countUnder(foundation, key)]
        }),
      ),
    ),
  dependingOn: async ({ id, inUseUntil }) => {
    const key = known.find((one) => one.id === id)
    return key === undefined ? [] : dependingOn(foundation, key, inUseUntil)
  },
})

/** Enough to say that a key stays. */
const factsMax = 1_000

/** Of a key that was in use for long the first of them end the count. */
const countUnder = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  key: KnownSecretKey,
): Promise<Counted> => {
  let count = 0
  for await (const event of eventsOf(eventLog, key)) {
    if (kindsOf(event).length > 0) count++
    if (count >= factsMax) return { count, more: true }
  }
  return { count, more: false }
}

type Kind = 'addresses' | 'requests' | 'people' | 'plans'

/**
 * How long a caller may repeat a request and is to have its answer: what the guide asks of callers is far less. Later the request is
 * refused, and nothing is charged: the id of a charge derives from the Idempotency-Key, under no SECRET_KEY.
 */
const repeatedForDays = 30

/** All of it, however much that is: what is given up is counted, not guessed. */
const dependingOn = async (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  key: KnownSecretKey,
  inUseUntil: Date | null,
): Promise<DependingOn[]> => {
  const counts: Record<Kind, number> = { addresses: 0, requests: 0, people: 0, plans: 0 }
  let openPlans = 0
  for await (const event of eventsOf(eventLog, key))
    for (const kind of kindsOf(event)) {
      counts[kind]++
      if (kind === 'plans' && (await mayBeApplied(eventLog, event))) openPlans++
    }
  const { rows } = await pool.query<{ ended: boolean }>(
    `select $1::timestamptz < now() - $2 * interval '1 day' as ended`,
    [inUseUntil, repeatedForDays],
  )
  const repeatsEnded = rows[0]?.ended === true
  const all: DependingOn[] = [
    {
      name: 'events about people',
      count: counts.people,
      prevents: 'an erasure would not find all by which these people are known, and they could come back',
    },
    {
      name: 're-rates that are not applied and not abandoned',
      count: openPlans,
      prevents: 'their plans could not be proved any more: apply or abandon each first',
    },
    {
      name: 'plans of re-rates',
      count: counts.plans - openPlans,
      loses: 'that they are as they were proposed cannot be proved any more; what was applied stays',
    },
    {
      name: 'requests under an Idempotency-Key',
      count: counts.requests,
      ...(repeatsEnded
        ? { loses: 'one that is repeated is refused (422) instead of answered, and not charged again' }
        : {
            prevents: `callers may still repeat them: ${repeatedForDays} days after another key came into use it is possible`,
          }),
    },
    {
      name: 'addresses of calls',
      count: counts.addresses,
      loses: '"ledger explain" cannot tell any more whether a call was about an address; its charge stands',
    },
  ]
  return all.filter(({ count }) => count > 0)
}

/** A plan that was changed is refused whatever it is sealed with. */
const mayBeApplied = async (eventLog: Foundation['eventLog'], event: RecordedEvent): Promise<boolean> => {
  const decoded = decodeEvent(event)
  if (decoded.type !== 'RerateProposed') return false
  try {
    const { applied, abandoned } = await readRun(eventLog, decoded.data.run)
    return applied === null && abandoned === null
  } catch (error) {
    if (error instanceof RunChanged) return false
    throw error
  }
}

/** The events of the time in which a key was in use; more of them where that cannot be told. */
async function* eventsOf(
  eventLog: Foundation['eventLog'],
  { from, until }: KnownSecretKey,
): AsyncGenerator<RecordedEvent> {
  const positionFrom = (await stillAt(eventLog, from)) ?? logStart
  const positionUntil = await stillAt(eventLog, until)
  const ending = new AbortController()
  try {
    const subscription = eventLog.subscribe({
      after: positionFrom,
      prefixes: ['ledger-', 'profile-', 'rerate-'],
      signal: ending.signal,
    })
    for await (const item of subscription) {
      if (item.kind === 'events')
        for (const event of item.events) if (!isPast(event.position, positionUntil)) yield event
      if (item.kind === 'caught-up' || isPast(item.position, positionUntil)) return
    }
  } finally {
    ending.abort()
  }
}

/** Null also for a place in another log, such as the one this was copied from: then all of it is looked through. */
const stillAt = async (
  eventLog: Foundation['eventLog'],
  place: PlaceOfKey | null,
): Promise<Position | null> =>
  place !== null && (await eventLog.at(place.position))?.id === place.eventId ? place.position : null

const isPast = (position: bigint, until: bigint | null): boolean => until !== null && position > until

/** By the text: most events are calls, and a log has many. */
const kindsOf = ({ type, data }: Pick<RecordedEvent, 'type' | 'data'>): Kind[] => {
  switch (type) {
    case 'KeyUsed':
      return [
        ...(data.includes('"address_hmac":"') && !data.includes('"address_hmac":""')
          ? (['addresses'] as const)
          : []),
        ...(data.includes('"request_fingerprint":') ? (['requests'] as const) : []),
      ]
    case 'ProfileFetched':
    case 'ProfileMissed':
      return ['people']
    case 'RerateProposed':
      return data.includes('"signed_by":"hmac"') ? ['plans'] : []
    default:
      return []
  }
}
