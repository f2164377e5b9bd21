import { type AppendPatience, appendPatience, appendUntilKnown } from './append-until-known.ts'
import { chain, digestAfter, genesisDigest, recordedMsIn } from './hash-chain.ts'
import {
  AppendConflict,
  type Appended,
  type EventLog,
  type ExpectedRevision,
  type NewEvent,
  type RecordedEvent,
} from './port.ts'
import { readIfAny } from './read-stream.ts'

type Log = Pick<EventLog, 'append' | 'read'>

/** The last event of a stream, to which the next event is chained. */
type LastEvent = Omit<RecordedEvent, 'position' | 'recordedAtMs'>

/**
 * Appends at exactly `expected`, and chains the events to the stream's last event. The writers of ledgers do not need this function,
 * because they already have the last digest. Throws the errors of `appendUntilKnown`, and `AppendConflict` if the stream does not end
 * at `expected`.
 */
export const appendChained = async (
  eventLog: Log,
  stream: string,
  expected: ExpectedRevision,
  events: readonly NewEvent[],
  patience: AppendPatience = appendPatience,
): Promise<Appended> => {
  const base = expected === 'none' ? -1 : expected
  const last = await lastOf(eventLog, stream)
  const revision = last?.revision ?? -1
  if (revision === base)
    return appendUntilKnown(eventLog, stream, expected, chainedTo(last, stream, events), patience)
  // The log can already contain the same events with another recording time, which is then kept.
  if (revision >= base + events.length && (await holds(eventLog, stream, base + 1, events)))
    return { revision: base + events.length, repeated: true }
  throw new AppendConflict(stream, expected, revision)
}

/** Reads the stream's last event, or null. */
export const lastOf = async (eventLog: Log, stream: string): Promise<RecordedEvent | null> => {
  const [last] = await readIfAny(eventLog, stream, { direction: 'backwards', max: 1 })
  return last ?? null
}

/** Chains events to `last`. If `last` has no digest, the events begin a new chain, and verification reports the missing digest. */
export const chainedTo = (
  last: LastEvent | null,
  stream: string,
  events: readonly NewEvent[],
): NewEvent[] => {
  let revision = last?.revision ?? -1
  let previous = last === null ? genesisDigest : digestAfter(last)
  const recordedAt = new Date(
    Math.max(Date.now(), last === null ? 0 : recordedMsIn(last.metadata, 0)),
  ).toISOString()
  return events.map((event) => {
    revision++
    const chained = chain(event, { stream, revision, previous }, recordedAt)
    previous = chained.digest
    return chained.event
  })
}

const holds = async (
  eventLog: Log,
  stream: string,
  from: number,
  events: readonly NewEvent[],
): Promise<boolean> => {
  const there = await eventLog.read(stream, { from, max: events.length })
  return events.every(({ id }, n) => there[n]?.id === id)
}
