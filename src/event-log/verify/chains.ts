import { currentVersion, isEventType } from '../../events/catalogue.ts'
import { digestAfter, genesisDigest, mismatch, recompute } from '../hash-chain.ts'
import type { RecordedEvent } from '../port.ts'

/**
 * Checks the hash chains of all streams together. Events of different streams can come in any order, and only the end of each chain is in memory.
 * Pure.
 */

/** The end of the part of a stream that was checked. */
type ChainEnd = {
  revision: number
  digest: string
  /** Whether a fault was reported. Later events of the stream are then not checked. */
  broken: boolean
}

/** Whether an operator has acknowledged the broken event with this digest. */
export type IsKnown = (event: RecordedEvent, digest: string) => boolean

export type Chains = {
  /** Checks the next event of a stream. Returns its fault, or null if there is none or if a fault of the stream was already reported. */
  check(event: RecordedEvent): string | null
  /** Begins a stream after an event that was verified earlier. */
  begin(verified: RecordedEvent): void
  met(): string[]
  /** Returns the last revision that was checked in a stream, or −1 if there is none. */
  lastOf(stream: string): number
  isBroken(stream: string): boolean
  /** Marks a stream as reported, so that no more faults are reported for it. */
  giveUp(stream: string): void
  counts(): { readonly streams: number; readonly known: number }
}

export const createChains = (isKnown: IsKnown = () => false): Chains => {
  let known = 0
  const ends = new Map<string, ChainEnd>()
  const endOf = (stream: string): ChainEnd => {
    const met = ends.get(stream)
    if (met !== undefined) return met
    const end = { revision: -1, digest: genesisDigest, broken: false }
    ends.set(stream, end)
    return end
  }
  // The last stream is cached, because consecutive events often belong to the same stream.
  let last: { stream: string; end: ChainEnd } = { stream: '', end: endOf('') }
  ends.delete('')
  return {
    check: (event) => {
      if (event.stream !== last.stream) last = { stream: event.stream, end: endOf(event.stream) }
      const { end } = last
      if (end.broken) return null
      const fault = faultOf(event, end, isKnown)
      if (fault === 'known') known++
      else if (fault !== null) end.broken = true
      return fault === 'known' ? null : fault
    },
    begin: (verified) => {
      const { stream, revision } = verified
      ends.set(stream, { revision, digest: digestAfter(verified), broken: false })
    },
    met: () => [...ends.keys()].sort(),
    lastOf: (stream) => ends.get(stream)?.revision ?? -1,
    isBroken: (stream) => ends.get(stream)?.broken === true,
    giveUp: (stream) => {
      endOf(stream).broken = true
    },
    counts: () => ({ streams: ends.size, known }),
  }
}

const faultOf = (event: RecordedEvent, end: ChainEnd, isKnown: IsKnown): string | null => {
  const { stream } = event
  const revision = end.revision + 1
  const { carried, computed } = recompute(event, { stream, revision, previous: end.digest })
  const fault =
    event.revision !== revision
      ? `expected revision ${revision}: an event is missing`
      : carried === null
        ? 'has no digest'
        : (mismatch(carried, computed) ?? unknown(event))
  if (fault !== null && !isKnown(event, computed)) return fault
  // The event after an acknowledged fault was chained to the digest that the faulty event contains.
  end.digest = carried ?? digestAfter(event)
  end.revision = event.revision
  return fault === null ? null : 'known'
}

const versionStart = '{"schema_version":'

/** Checks only that this release supports the event's type, because the digest already proves that the bytes are unchanged. */
const unknown = ({ type, metadata }: RecordedEvent): string | null => {
  const newest = isEventType(type) ? currentVersion(type) : 0
  const version = metadata.startsWith(versionStart)
    ? Number.parseInt(metadata.slice(versionStart.length, versionStart.length + 6), 10)
    : 0
  if (version >= 1 && version <= newest) return null
  return newest === 0
    ? `event type ${type} is unknown to this release; a newer release or other software wrote it`
    : `${type} version ${version} is unknown to this release, which has versions up to ${newest}`
}
