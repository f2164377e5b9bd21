import { accountChanges } from '../../../projections/audit.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEvent } from '../../events/catalogue.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { provedUserOf } from '../operator.ts'

/**
 * Security events of an account, shown to its owner. The rows of the audit only locate the events; their content is read from the
 * event log. The notices do not name operators, because partners read them, too.
 */

export type AccountNotice = { readonly at: Date; readonly says: string }

const noticedTypes = [
  'UserPasswordChanged',
  'SecondFactorSet',
  'SecondFactorRemoved',
  'RecoveryCodesRenewed',
  'RecoveryCodeUsed',
  'SecondFactorsRefused',
  'OperatorTokenIssued',
  'UserSignedIn',
] as const satisfies readonly DomainEvent['type'][]

/** The maximum number of events that are read. Sign-ins on known devices are left out afterwards. */
const readMax = 60

/** At most `max` notices, newest first. */
export const accountNotices = async (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  { user, sinceMs, max }: { user: string; sinceMs: number; max: number },
): Promise<AccountNotice[]> => {
  const since = new Date(sinceMs).toISOString()
  const rows = await rowsOf(pool, accountChanges(user, { types: noticedTypes, since, max: readMax }))
  const events = await Promise.all(rows.map(({ position }) => eventLog.at(BigInt(position))))
  const notices = events.flatMap((event) => {
    if (event === null) return []
    const { metadata, ...domain } = decodeEvent(event)
    const says = sentenceOf(domain, metadata, user)
    return says === null ? [] : [{ at: new Date(event.recordedAtMs), says }]
  })
  return notices.slice(0, max)
}

/** The notice for an event; null if the event is not about this account, or if it needs no notice. */
const sentenceOf = (event: DomainEvent, { actor }: EventMetadata, user: string): string | null => {
  if (!('user' in event.data) || event.data.user !== user) return null
  const byOperator = provedUserOf(actor) === user ? '' : ' by an operator'
  switch (event.type) {
    case 'UserPasswordChanged':
      return `The password was changed${byOperator}.`
    case 'SecondFactorSet':
      return `A second factor was set up${byOperator}.`
    case 'SecondFactorRemoved':
      return `The second factor was removed${byOperator}.`
    case 'RecoveryCodesRenewed':
      return `New recovery codes were created${byOperator}.`
    case 'RecoveryCodeUsed':
      return 'A recovery code was used.'
    case 'OperatorTokenIssued':
      return `A token for the command line was created${byOperator}.`
    case 'SecondFactorsRefused':
      return event.data.reason === 'broken'
        ? null
        : `${event.data.count === 1 ? 'A code was' : `${event.data.count} codes were`} refused after the right password.`
    case 'UserSignedIn':
      return event.data.known_device ? null : 'There was a sign-in on a new device.'
    default:
      return null
  }
}
