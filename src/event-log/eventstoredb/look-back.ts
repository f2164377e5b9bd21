import type { LookedBack, Position, RecordedEvent } from '../port.ts'
import type { Connection } from './client.ts'
import { recordedEvent } from './messages.ts'
import { isPositionRefused, isSystemEvent, readAt, readUntil, searchSilenceMs } from './read.ts'

/** As many bytes as a page holds; the last event of it may exceed them. */
const pageBytesMax = 4 * 1024 * 1024
/** The server writes statistics of its own, of which any number may follow one another. */
const lookedAtMax = 10_000

type From = {
  readonly before: Position | null
  readonly max: number
  /** Of what streams' names begin with, on a server of several. */
  readonly prefix: string | undefined
}

/** The newest events before a position, the server's own left out. For the server, too, a position is exclusive backwards. */
export const readBack = async (
  connection: Connection,
  { before, max, prefix }: From,
  silenceMs: number,
): Promise<LookedBack> => {
  const events: RecordedEvent[] = []
  let [bytes, lookedAt] = [0, 0]
  let reached: Position | null = null
  let next: Position | null = null
  const request = {
    ...({ direction: 'backwards', from: before ?? undefined, max: Number.MAX_SAFE_INTEGER } as const),
    ...(prefix === undefined ? {} : { prefix }),
  }
  try {
    await readUntil(connection, request, {
      silenceMs: prefix === undefined ? silenceMs : searchSilenceMs,
      take: (response) => {
        const event = recordedEvent(response)
        if (event === undefined) return 'more'
        if (events.length >= max || bytes >= pageBytesMax || lookedAt >= lookedAtMax) {
          next = reached
          return 'enough'
        }
        lookedAt++
        reached = event.position
        if (isSystemEvent(event)) return 'more'
        bytes += event.data.length + event.metadata.length
        events.push(event)
        return 'more'
      },
    })
  } catch (error) {
    if (before === null || !isPositionRefused(error)) throw error
    // What stands before an event must not be left out because the server was in trouble.
    if ((await readAt(connection, before, silenceMs)) !== null) throw error
    return { events: [], unreadable: [], next: null }
  }
  return { events, unreadable: [], next }
}
