import { EventsUnreadable, type RecordedEvent, StreamMissing } from '../../event-log/port.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/write/commit.ts'

/** As many as fit on a terminal. */
const newestMax = 20

/**
 * One event of a stream, or its newest ones in order if no revision is given. Throws `CommandRefused` if the stream or
 * event does not exist or cannot be opened.
 */
export const showEvents = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { stream, revision }: { stream: string; revision: number | null },
): Promise<readonly RecordedEvent[]> => {
  try {
    const events =
      revision === null
        ? (await eventLog.read(stream, { direction: 'backwards', max: newestMax })).reverse()
        : await eventLog.read(stream, { from: revision, max: 1 })
    if (events.length === 0) throw new CommandRefused(`there is no revision ${revision} of ${stream}`)
    return events
  } catch (error) {
    if (error instanceof StreamMissing || error instanceof EventsUnreadable)
      throw new CommandRefused(error.message)
    throw error
  }
}
