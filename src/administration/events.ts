import { EventsUnreadable, type RecordedEvent, StreamMissing } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/commit.ts'

/** As many as a terminal shows. */
const newestMax = 20

/**
 * One event of a stream, or its newest ones in order where no revision is given. Throws `CommandRefused` where there is no such stream or
 * event, or where it cannot be opened.
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
