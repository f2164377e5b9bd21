import type { MicroCredits } from '../billing/money.ts'
import type { Figures, FiguresQuestion } from '../ledger/figures.ts'
import type { AdmittedCall } from './call.ts'
import type { CallDependencies } from './dependencies.ts'
import { refusalWaitMs, unavailableWhenLate, waitLeftMs } from './waiting.ts'

/**
 * Returns the caller's account in the ledger. Throws `Unavailable` if the account cannot be read in the call's remaining time minus `keptMs`.
 */
export const figuresFor = (
  { ledger }: CallDependencies,
  call: Pick<AdmittedCall, 'key' | 'startedMs' | 'atMs'>,
  { keptMs = 0, ...question }: Omit<FiguresQuestion, 'atMs'> & { readonly keptMs?: number } = {},
): Promise<Figures> =>
  unavailableWhenLate(ledger.figures(call.key.organizationId, { ...question, atMs: call.atMs }), {
    waitMs: waitLeftMs(call) - keptMs,
    what: 'the ledger',
  })

/**
 * Returns the balance in the ledger. If the ledger does not answer, returns the last known balance, because an answer without a
 * charge must not wait.
 */
export const balanceOrLastKnown = (
  { ledger }: CallDependencies,
  { key: { organizationId }, atMs }: AdmittedCall,
): Promise<MicroCredits | undefined> =>
  unavailableWhenLate(ledger.figures(organizationId, { atMs }), {
    waitMs: refusalWaitMs,
    what: 'the ledger',
  }).then(
    ({ balance }) => balance,
    () => ledger.knownBalance(organizationId),
  )
