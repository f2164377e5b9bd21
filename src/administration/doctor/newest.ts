import { type EventLog, type RecordedEvent, StreamMissing } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { LogCheckpointed, SigningKeyAnnounced } from '../../events/checkpoints.ts'
import { checkpointStream } from '../../events/streams.ts'

/** The newest events of a stream: what doctor asks costs the same however old an installation is. */

const pageMax = 500

/** The newest event that is wanted among the last `lookBackMax`. Null: there is none. */
export const newestOf = async (
  eventLog: Pick<EventLog, 'read'>,
  stream: string,
  { wanted, lookBackMax }: { wanted: (event: RecordedEvent) => boolean; lookBackMax: number },
): Promise<RecordedEvent | null> => {
  let from: number | undefined
  for (let left = lookBackMax; left > 0; left -= pageMax) {
    const page = await backwards(eventLog, stream, { from, max: Math.min(pageMax, left) })
    const found = page.find(wanted)
    if (found !== undefined) return found
    const oldest = page.at(-1)
    if (oldest === undefined || oldest.revision === 0) return null
    from = oldest.revision - 1
  }
  return null
}

const backwards = async (
  eventLog: Pick<EventLog, 'read'>,
  stream: string,
  { from, max }: { from: number | undefined; max: number },
): Promise<RecordedEvent[]> => {
  try {
    return await eventLog.read(stream, {
      direction: 'backwards',
      max,
      ...(from === undefined ? {} : { from }),
    })
  } catch (error) {
    if (error instanceof StreamMissing) return []
    throw error
  }
}

/** A new key, or a new tree, is announced right before the checkpoint it is for. */
const checkpointsMax = 20

/**
 * What the stream of checkpoints says at its end: the key that was announced after the last checkpoint, if any, and the last checkpoint.
 * Signatures are not checked: "event-log verify" does that, over all of them.
 */
export const newestOfCheckpoints = async (
  eventLog: Pick<EventLog, 'read'>,
): Promise<{
  readonly announced: SigningKeyAnnounced | null
  readonly checkpoint: (LogCheckpointed & { readonly at: string }) | null
}> => {
  const page = await backwards(eventLog, checkpointStream, { from: undefined, max: checkpointsMax })
  let announced: SigningKeyAnnounced | null = null
  for (const recorded of page) {
    const { type, data, metadata } = decodeEvent(recorded)
    if (type === 'SigningKeyAnnounced') announced ??= data
    if (type === 'LogCheckpointed')
      return { announced, checkpoint: { ...data, at: metadata.recorded_at ?? metadata.effective_at } }
  }
  return { announced, checkpoint: null }
}
