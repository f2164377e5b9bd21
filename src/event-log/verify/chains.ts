import { currentVersion, isEventType } from '../../events/catalogue.ts'
import { digestAfter, genesisDigest, recompute } from '../hash-chain.ts'
import type { RecordedEvent } from '../port.ts'

/**
 * Checks the hash chains of all streams at the same time. Events of different streams can come in any order, and only the end of
 * each chain is in memory. Pure.
 */

/** The end of the part of a stream that was checked. */
type ChainEnd = {
  revision: number
  digest: string
  /** True after a reported fault. Later events of the stream are then not checked. */
  broken: boolean
}

/** Whether an operator has acknowledged the broken event with this digest. */
export type IsKnown = (event: RecordedEvent, digest: string) => boolean

export type Chains = {
  /** Checks the next event of a stream. Returns the fault; null if the event has none, or if a fault of the stream was already reported. */
  check(event: RecordedEvent): string | null
  /** Begins a stream after an event that was verified earlier. */
  begin(verified: RecordedEvent): void
  met(): string[]
  /** The last revision seen in a stream; −1 if no event was seen. */
  lastOf(stream: string): number
  isBroken(stream: string): boolean
  /** Marks a stream as reported, so that its other faults are not reported. */
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
  // The last stream is remembered, because consecutive events often belong to the same stream.
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
  // Events after an acknowledged fault were chained to the digest that the faulty event contains.
  end.digest = carried ?? digestAfter(event)
  end.revision = event.revision
  return fault === null ? null : 'known'
}

const mismatch = (carried: string, computed: string): string | null =>
  carried === computed
    ? null
    : 'its bytes do not match its digest, so this event or the one before it was changed'

const versionStart = '{"schema_version":'

/** The digest already proves the bytes, so it is enough to check that this release supports the event's type. */
const unknown = ({ type, metadata }: RecordedEvent): string | null => {
  const newest = isEventType(type) ? currentVersion(type) : 0
  const version = metadata.startsWith(versionStart)
    ? Number.parseInt(metadata.slice(versionStart.length, versionStart.length + 6), 10)
    : 0
  if (version >= 1 && version <= newest) return null
  return newest === 0
    ? `event type ${type} is not in the catalogue of this release`
    : `${type} version ${version} is not known to this release (newest: ${newest})`
}
