import { z } from 'zod'
import { checkEventData, currentVersion } from '../events/catalogue.ts'
import { isInstant } from '../events/primitives.ts'
import type { RecordedEvent } from './port.ts'
import { type DecodedEvent, decodeEvent, faultOf, whyUnreadable } from './stored-event.ts'

/** An event of a ledger cannot be used, so nothing that depends on it can be calculated. The message contains the stream and the revision. */
class LedgerEventInvalid extends Error {
  override name = 'LedgerEventInvalid'
  constructor(recorded: RecordedEvent, cause: unknown) {
    const { stream, revision, type } = recorded
    const why = whyUnreadable(recorded, cause)
    super(`event ${revision} of ${stream} (${type.slice(0, 100)}) is invalid: ${why}; run "ledger verify"`, {
      cause,
    })
  }
}

/** Runs `work` on an event. If it throws, throws `LedgerEventInvalid`. */
export const withEvent = <Result>(recorded: RecordedEvent, work: () => Result): Result => {
  try {
    return work()
  } catch (error) {
    throw error instanceof LedgerEventInvalid ? error : new LedgerEventInvalid(recorded, error)
  }
}

/**
 * Decodes an event of a ledger, and checks the time and the data that other software or a person could have written. The data of
 * calls and charges are not checked against their schemas, because that takes longer than decoding them; folding checks their amounts.
 * Throws `LedgerEventInvalid`.
 */
export const decodeLedgerEvent = (recorded: RecordedEvent): DecodedEvent =>
  withEvent(recorded, () => {
    const decoded = decodeEvent(recorded)
    const { type, metadata } = decoded
    if (!isInstant(metadata.effective_at))
      throw new Error(`effective_at: ${JSON.stringify(metadata.effective_at)} is not an instant`)
    if (typeof decoded.data !== 'object' || decoded.data === null)
      throw new Error('its data are not an object')
    if (type !== 'KeyUsed' && type !== 'CreditCharged') checkFits(decoded)
    return decoded
  })

const checkFits = ({ type, data }: DecodedEvent): void => {
  try {
    checkEventData(type, currentVersion(type), data)
  } catch (error) {
    throw error instanceof z.ZodError ? new Error(faultOf(error, data), { cause: error }) : error
  }
}
