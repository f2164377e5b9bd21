import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import { verifyEventLog } from '../administration/checkpoints.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { LogFault } from '../event-log/verify/verify-log.ts'
import { operatorStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'

/** Ten million events take some minutes. */
export const verifyLogSecondsMax = 6 * 3_600

const namedMax = 20
const nameCharsMax = 400

/**
 * Reads the whole event log and proves it, as "event-log verify" does. What was found is an event; faults are logged besides. Returns how many
 * there are, which must be none.
 */
export const verifyLogWhole = async (
  foundation: Pick<Foundation, 'eventLog' | 'treeStore'>,
  logger: Logger,
): Promise<number> => {
  const { events, streams, known, checkpoints, faults } = await verifyEventLog(foundation, {})
  const named = faults.slice(0, namedMax).map(nameOf)
  if (faults.length > 0)
    logger.fatal(
      { faults: faults.length, named },
      'the event log is not what was written; see "event-log verify"',
    )
  await appendNext(foundation.eventLog, operatorStream, [
    encodeEvent(
      {
        type: 'LogVerified',
        data: { events, streams, known, checkpoints: checkpoints.recomputed, faults: faults.length, named },
      },
      {
        id: eventIdOf(operatorStream, `verified/${randomUUID()}`, 0),
        actor: 'system',
        effectiveAt: new Date().toISOString(),
      },
    ),
  ])
  return faults.length
}

/** Of a stream's name, which other software may have written, only what an event takes as text. */
const nameOf = ({ stream, revision, fault }: LogFault): string =>
  `${stream}${revision === null ? '' : ` revision ${revision}`}: ${fault}`
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .slice(0, nameCharsMax)
