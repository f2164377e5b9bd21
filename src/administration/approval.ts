import { provedUserOf } from './operator.ts'

/**
 * Approval of price changes: one rule for price books and re-rates. Pure.
 *
 * With `twoPerson` a second person must approve, and both must be proved. Otherwise consent is enough (`consents`: a form
 * that was sent, or a yes to the plan of a command).
 */
type ApprovalAsked = {
  /** The actors of the proposal and of the approval. */
  readonly proposer: string
  readonly approver: string
  readonly twoPerson: boolean
  readonly consents: boolean
}

const howToProve = 'set OPERATOR_TOKEN (see "user token"), or sign in to the dashboard'

/** Why it may not be approved, and the next step; null: it may. */
export const approvalRefusal = ({
  proposer,
  approver,
  twoPerson,
  consents,
}: ApprovalAsked): string | null => {
  if (!twoPerson) return consents ? null : 'an approval needs your consent'
  const [first, second] = [provedUserOf(proposer), provedUserOf(approver)]
  if (second === null)
    return `an approval needs a proved person, and "${approver}" is only a label: ${howToProve}`
  if (first === null)
    return `it was proposed by "${proposer}", which is only a label: withdraw it, and let a proved person propose it`
  if (first === second) return `${first} proposed it: another person has to approve it (TWO_PERSON=on)`
  return null
}
