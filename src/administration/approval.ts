import type { EventLog } from '../event-log/port.ts'
import { provedUserOf } from './operator.ts'
import { couldActAs, noOperators, type OperatorState, operatorsSince } from './users/operators.ts'

/**
 * The rule for approving price books and re-rates. With `twoPerson`, a second person must approve, and both must be verified users.
 * A user does not count if the proposer could act as that user. Without `twoPerson`, one person is enough.
 */
type ApprovalAsked = {
  readonly proposer: string
  readonly approver: string
  readonly twoPerson: boolean
  /** See `readOperators`. Null for an earlier approval, of which only the names are checked. */
  readonly operators: OperatorState | null
}

/** The users and tokens that an approval depends on. They are not read if one person is enough. */
export const readOperators = async (
  eventLog: Pick<EventLog, 'read'>,
  twoPerson: boolean,
): Promise<OperatorState> => (twoPerson ? operatorsSince(eventLog, noOperators) : noOperators)

const howToProve = 'set OPERATOR_TOKEN (see "user token"), or sign in to the dashboard'

/** The reason why the change cannot be approved, and the next step; null if it can be approved. */
export const approvalRefusal = ({
  proposer,
  approver,
  twoPerson,
  operators,
}: ApprovalAsked): string | null => {
  if (!twoPerson) return null
  const [first, second] = [provedUserOf(proposer), provedUserOf(approver)]
  if (second === null)
    return `only a verified user can approve, and "${approver}" is an unverified name: ${howToProve}`
  if (first === null)
    return `it was proposed by "${proposer}", an unverified name: withdraw it, then propose it again as a verified user`
  if (first === second) return `${first} proposed it: another person must approve it (TWO_PERSON=on)`
  if (operators !== null && couldActAs(operators, proposer, second))
    return `${first} proposed it, and could act as ${second}, whose account, password or token ${first} has set up: a person whose access was set up by someone else must approve it (TWO_PERSON=on)`
  return null
}
