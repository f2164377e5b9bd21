import type { ProvedRun } from '../administration/rerates/proof.ts'
import type { ReratePlan } from '../administration/rerates/rerates.ts'
import { formatCredits, parseCredits } from '../billing/money.ts'
import type { RerateLedgerPlanned } from '../events/rerates.ts'
import { table } from './table.ts'

/** A re-rate for people. */

const dearer = ({ given, taken }: { given: string; taken: string }): string =>
  signed(parseCredits(taken) - parseCredits(given))

const signed = (amount: bigint): string => `${amount > 0n ? '+' : ''}${formatCredits(amount)}`

export const planLines = ({ proposed, ledgers }: ReratePlan): string[] => {
  const { run, from, to, book, reason, calls, calls_affected, plan_digest, signature } = proposed
  return [
    `re-rate ${run}: calls from ${from} to ${to} under ${book.version === null ? 'prices that were not published' : `price book ${book.version}`} (${reason})`,
    `${calls} calls of ${ledgers.length} organizations, ${calls_affected} of which would cost something else: ${dearer(proposed)} credits in all`,
    `plan ${plan_digest}, signed by ${signature.signed_by === 'hmac' ? "the installation's secret" : `key ${signature.signed_by}`}`,
    ...ledgers.flatMap(ledgerLines),
  ]
}

const ledgerLines = (ledger: RerateLedgerPlanned): string[] => {
  const {
    organization_id,
    calls_affected,
    calls,
    balance,
    uncollected,
    unaffordable,
    refunded,
    differences,
  } = ledger
  return [
    '',
    `${organization_id}: ${calls_affected} of ${calls} calls, ${dearer(ledger)} credits; balance ${balance}${uncollected === '0' ? '' : `, of which ${uncollected} could not be collected`}`,
    ...(unaffordable.calls === 0
      ? []
      : [
          `${unaffordable.calls} calls could not have been paid then, such as ${unaffordable.first.slice(0, 3).join(', ')}; they stay what they are`,
        ]),
    ...table(
      differences.map(({ sku, rule, calls: of, now, rerated }) => ({
        sku,
        rule: rule ?? '(given back, or re-rated before)',
        calls: of,
        now,
        rerated,
        difference: signed(parseCredits(rerated) - parseCredits(now)),
      })),
    ),
    ...refundedLines(refunded),
  ]
}

const refundedLines = (refunded: RerateLedgerPlanned['refunded']): string[] => {
  if (refunded === undefined || refunded.calls === 0) return []
  const { calls, given_back, first } = refunded
  const more = calls - first.length
  return [
    '',
    `Refunded or reversed calls: ${calls}. The re-rate keeps the ${given_back} credits that were given back.`,
    ...table(first),
    ...(more > 0 ? [`… and ${more} more`] : []),
  ]
}

const stateOf = ({ applied, abandoned, approved, done, ledgers }: ProvedRun): string => {
  if (applied !== null) return 'applied'
  if (abandoned !== null) return 'abandoned'
  if (done.size > 0) return `applied to ${done.size} of ${ledgers.size} ledgers`
  return approved === null ? 'proposed' : 'approved'
}

export const doneJson = (found: ProvedRun) => ({
  state: stateOf(found),
  proposed_by: found.proposed.by,
  approved_by: found.approved?.by ?? null,
  done: [...found.done.values()],
  applied: found.applied,
  abandoned: found.abandoned,
})

export const runLines = (found: ProvedRun): string[] => {
  const { proposed, ledgers, approved, applied, abandoned, done } = found
  return [
    ...planLines({ proposed, ledgers: [...ledgers.values()] }),
    '',
    `proposed by ${proposed.by} at ${proposed.at}`,
    ...(approved === null ? [] : [`approved by ${approved.by} at ${approved.at}`]),
    ...(abandoned === null ? [] : [`abandoned by ${abandoned.by} at ${abandoned.at}: ${abandoned.reason}`]),
    ...[...done.values()].map((one) =>
      'adjustment_id' in one
        ? `${one.organization_id}: balance changed by ${one.amount} at revision ${one.revision}${one.uncollected === '0' ? '' : `; ${one.uncollected} not collected`}`
        : `${one.organization_id}: left out, ${one.reason}`,
    ),
    ...(applied === null
      ? []
      : [
          `applied by ${applied.by} at ${applied.at}: ${applied.applied} organizations, ${applied.left_out} left out, balances changed by ${applied.amount}, ${applied.uncollected} not collected`,
        ]),
  ]
}
