import { readIfAny } from '../../event-log/read-stream.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { type Checkpoint, CheckpointFault } from '../../event-log/tree/checkpoint-stream.ts'
import { CheckpointRefused } from '../../event-log/tree/make-checkpoint.ts'
import { ProofFault } from '../../event-log/tree/prove.ts'
import { NoteFault } from '../../event-log/tree/signed-note.ts'
import { type LogVerdict, type VerifyLogOptions, verifyLog } from '../../event-log/verify/verify-log.ts'
import { checkpointStream, organizationOfStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { InputFault } from '../input.ts'
import { acknowledgedFaults } from '../ledgers/ledgers.ts'

type Open = Pick<Foundation, 'eventLog' | 'treeStore'>

/** Turns faults in checkpoints and signatures into refusals, so that every interface shows their messages. */
export const orRefused = async <Done>(work: Promise<Done>): Promise<Done> => {
  try {
    return await work
  } catch (error) {
    if (error instanceof CheckpointRefused || error instanceof CheckpointFault || error instanceof ProofFault)
      throw new CommandRefused(error.message, { cause: error })
    throw error
  }
}

export type ListedCheckpoint = Pick<Checkpoint, 'origin' | 'size' | 'root' | 'position' | 'note'> & {
  readonly recorded_at: string
}

/** The last checkpoints, newest first. */
export const listCheckpoints = async (
  { eventLog }: Pick<Open, 'eventLog'>,
  max: number,
): Promise<ListedCheckpoint[]> => {
  const page = await readIfAny(eventLog, checkpointStream, { direction: 'backwards', max })
  return page
    .map(decodeEvent)
    .flatMap(({ type, data, metadata }) =>
      type === 'LogCheckpointed' ? [{ ...data, recorded_at: metadata.recorded_at }] : [],
    )
}

/** Verifies the whole log. Throws an `InputFault` about `against` if that text is not a checkpoint. */
export const verifyEventLog = async (
  { eventLog, treeStore }: Pick<Open, 'eventLog' | 'treeStore'>,
  options: Omit<VerifyLogOptions, 'isKnown'>,
): Promise<LogVerdict> => {
  const acknowledged = await acknowledgedFaults(eventLog)
  try {
    return await verifyLog(
      { eventLog, store: treeStore },
      {
        ...options,
        isKnown: ({ stream, revision }, digest) => {
          const organizationId = organizationOfStream(stream)
          return organizationId !== null && acknowledged(organizationId, revision, digest)
        },
      },
    )
  } catch (error) {
    if (error instanceof NoteFault) throw new InputFault('against', error.message)
    throw error
  }
}
