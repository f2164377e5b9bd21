import { currentVersion, isEventType } from '../../events/catalogue.ts'
import { genesisDigest, recompute } from '../hash-chain.ts'
import type { RecordedEvent } from '../port.ts'

/**
 * The hash chains of all streams together, event by event, in any interleaving of streams. Only the end of each stream
 * is held. Pure.
 */

/** How far a stream has been followed. */
type ChainEnd = {
  revision: number
  digest: string
  /** Its first fault was reported; later events are not checked. */
  broken: boolean
}

/** Whether an event whose bytes give this digest is known to be broken. */
export type IsKnown = (event: RecordedEvent, digest: string) => boolean

export type Chains = {
  /** The fault of the stream's next event; null: there is none, or the stream was reported already. */
  check(event: RecordedEvent): string | null
  /** The stream continues after an event that was verified before. For a stream that has not been met. */
  begin(verified: RecordedEvent): void
  /** The streams that were met, by name. */
  met(): string[]
  /** The last revision that was met; −1: none. */
  lastOf(stream: string): number
  isBroken(stream: string): boolean
  /** Reports the stream. Its other faults are not reported. */
  giveUp(stream: string): void
  /** How many streams there are, and how many faults are known. */
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
  // Events come in runs of one stream.
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
      const { carried, computed } = recompute(verified, { ...verified, previous: genesisDigest })
      ends.set(stream, { revision, digest: carried ?? computed, broken: false })
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
        ? 'carries no digest'
        : (mismatch(carried, computed) ?? unknown(event))
  if (fault !== null && !isKnown(event, computed)) return fault
  // Events after a known fault were chained to the digest that the faulty event carries.
  end.digest =
    carried ??
    (revision === 0 ? computed : recompute(event, { stream, revision, previous: genesisDigest }).computed)
  end.revision = event.revision
  return fault === null ? null : 'known'
}

const mismatch = (carried: string, computed: string): string | null =>
  carried === computed
    ? null
    : 'its bytes do not give the digest it carries: it, or the event before it, was changed'

const versionStart = '{"schema_version":'

/** The digest proves that the bytes are as written, so it is enough to check that this release knows their type. */
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
