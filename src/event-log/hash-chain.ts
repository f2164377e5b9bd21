import { hash } from 'node:crypto'
import type { NewEvent } from './port.ts'

/**
 * The hash chain of a stream. Every event's metadata ends with `recorded_at` and
 *
 *   digest = base64url(SHA-256(previous digest LF stream LF revision LF event id LF type LF metadata LF data))
 *
 * over UTF-8. `metadata` is the exact text of the metadata up to the digest member, and `data` is the exact text of the data. The previous
 * digest of the first event is empty. If an event is changed, removed, inserted or moved, no later digest matches.
 */

/** The previous digest of a stream's first event. */
export const genesisDigest = ''

const digestMember = ',"digest":"'
/** In JSON, quotes in a string are escaped, so this text is always the member and never a part of a string. */
const recordedMember = ',"recorded_at":"'
const instantLength = 24

type ChainPlace = { readonly stream: string; readonly revision: number; readonly previous: string }

/**
 * Completes the metadata of an event, which must be a non-empty JSON object on one line, without a digest. `recordedAt` is in ISO 8601, and must
 * not be before the recording time of the previous event.
 */
export const chain = (
  event: NewEvent,
  place: ChainPlace,
  recordedAt: string,
): { event: NewEvent; digest: string } => {
  const open = `${event.metadata.slice(0, -1)}${recordedMember}${recordedAt}"`
  const digest = digestOf(event, open, place)
  return { event: { ...event, metadata: `${open}${digestMember}${digest}"}` }, digest }
}

/** The last parsed recording time. All events of an append have the same one, and parsing it takes longer than finding it. */
let parsed = { text: '', ms: Number.NaN }

/** The recording time in the metadata, in milliseconds, or `logMs` if there is none. */
export const recordedMsIn = (metadata: string, logMs: number): number => {
  const at = metadata.lastIndexOf(recordedMember)
  if (at === -1) return logMs
  const start = at + recordedMember.length
  const text = metadata.slice(start, start + instantLength)
  if (text !== parsed.text) parsed = { text, ms: Date.parse(text) }
  return Number.isNaN(parsed.ms) ? logMs : parsed.ms
}

/** The digest that an event contains, and the digest calculated from its bytes. They are equal if nothing was changed. */
export const recompute = (
  event: NewEvent,
  place: ChainPlace,
): { carried: string | null; computed: string } => {
  const at = event.metadata.lastIndexOf(digestMember)
  const open = at === -1 ? event.metadata : event.metadata.slice(0, at)
  return { carried: carriedIn(event.metadata), computed: digestOf(event, open, place) }
}

/** The digest at the end of the metadata. Null if other software wrote the event, even if its metadata contain a digest elsewhere. */
const carriedIn = (metadata: string): string | null => {
  const at = metadata.lastIndexOf(digestMember)
  const tail = at === -1 ? '' : metadata.slice(at + digestMember.length)
  return tail.endsWith('"}') ? tail.slice(0, -2) : null
}

/** The fault of an event whose digests differ; null if they are equal. */
export const mismatch = (carried: string, computed: string): string | null =>
  carried === computed
    ? null
    : 'its bytes do not match its digest, so this event or the one before it was changed'

/** The digest to which the next event of a stream is chained. An event without a digest is treated as the first of a chain. */
export const digestAfter = (event: NewEvent & Pick<ChainPlace, 'stream' | 'revision'>): string =>
  carriedIn(event.metadata) ?? recompute(event, { ...event, previous: genesisDigest }).computed

const digestOf = (
  event: NewEvent,
  openMetadata: string,
  { stream, revision, previous }: ChainPlace,
): string =>
  hash(
    'sha256',
    `${previous}\n${stream}\n${revision}\n${event.id}\n${event.type}\n${openMetadata}\n${event.data}`,
    'base64url',
  )
