import { provedUserOf } from './operator.ts'

/**
 * The rule for approving price books and re-rates. With `twoPerson`, a second person must approve, and both must be verified users.
 * Without `twoPerson`, one person is enough.
 */
type ApprovalAsked = {
  readonly proposer: string
  readonly approver: string
  readonly twoPerson: boolean
}

const howToProve = 'set OPERATOR_TOKEN (see "user token"), or sign in to the dashboard'

/** The reason why the change cannot be approved, and the next step; null if it can be approved. */
export const approvalRefusal = ({ proposer, approver, twoPerson }: ApprovalAsked): string | null => {
  if (!twoPerson) return null
  const [first, second] = [provedUserOf(proposer), provedUserOf(approver)]
  if (second === null)
    return `only a verified user can approve, and "${approver}" is an unverified name: ${howToProve}`
  if (first === null)
    return `it was proposed by "${proposer}", an unverified name: withdraw it, then propose it again as a verified user`
  if (first === second) return `${first} proposed it: another person must approve it (TWO_PERSON=on)`
  return null
}
