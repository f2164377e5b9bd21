import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import { createActs } from '../administration/acts.ts'
import { verifyEventLog } from '../administration/checkpoints.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import type { LogFault, VerifiedUpTo } from '../event-log/verify/verify-log.ts'
import type { LogVerified } from '../events/operator.ts'
import { operatorStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'

/** A run reads for `readMaxMs`; what comes after is much less. */
export const verifyLogSecondsMax = 6 * 3_600
/** A log that takes longer is verified in as many runs as it needs. */
const readMaxMs = 2 * 3_600_000

const namedMax = 20
const nameCharsMax = 400

type Parts = Pick<Foundation, 'eventLog' | 'treeStore' | 'checkpoints'>

/**
 * Verifies the event log from the last checkpoint up to which a run before this one found no fault, as "event-log verify" does from the
 * beginning. What was found is an event; faults are logged besides. Returns how many there are, which must be none.
 */
export const verifyLogOnward = async (parts: Parts, logger: Logger): Promise<number> => {
  const last = await lastThrough(parts)
  const since = last !== null && (await isSigned(parts, last)) ? last : null
  const { events, streams, known, checkpoints, faults, after, through } = await verifyEventLog(parts, {
    since,
    readMaxMs,
  })
  const named = faults.slice(0, namedMax).map(nameOf)
  if (faults.length > 0)
    logger.fatal(
      { faults: faults.length, named },
      'the event log is not what was written; see "event-log verify"',
    )
  await appendNext(parts.eventLog, operatorStream, [
    encodeEvent(
      {
        type: 'LogVerified',
        data: {
          events,
          streams,
          known,
          checkpoints: checkpoints.recomputed,
          faults: faults.length,
          named,
          after,
          // The next run reads what is faulty again.
          through: faults.length > 0 ? since : await signed(parts, through),
        },
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

type Through = NonNullable<LogVerified['through']>

const lastThrough = async ({ eventLog }: Parts): Promise<Through | null> => {
  const newest = await createActs(eventLog, ['LogVerified']).newest('LogVerified')
  if (newest === undefined) return null
  const { type, data } = decodeEvent(newest)
  return type === 'LogVerified' ? data.through : null
}

/** Of its own kind, so that no signature of a checkpoint passes for one. */
const textOf = ({ origin, size, root }: VerifiedUpTo): string =>
  `enrichment-ledger verified log\n${origin}\n${size}\n${root}\n`

/** Null where the signing key is not here: then the next run reads the whole log. */
const signed = async ({ checkpoints }: Parts, through: VerifiedUpTo | null): Promise<Through | null> => {
  const signature = through === null ? null : await checkpoints.sign(textOf(through))
  return through === null || signature === null
    ? null
    : { ...through, key_id: signature.keyId, signature: signature.value }
}

/** An event that anyone with access to the database could append is not believed. */
const isSigned = ({ checkpoints }: Parts, through: Through): Promise<boolean> =>
  checkpoints.isSigned(textOf(through), { keyId: through.key_id, value: through.signature })

/** Of a stream's name, which other software may have written, only what an event takes as text. */
const nameOf = ({ stream, revision, fault }: LogFault): string =>
  `${stream}${revision === null ? '' : ` revision ${revision}`}: ${fault}`
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .slice(0, nameCharsMax)
