import type { MicroCredits } from '../billing/money.ts'
import type { Figures, FiguresQuestion } from '../ledger/figures.ts'
import type { AdmittedCall } from './call.ts'
import type { CallDependencies } from './dependencies.ts'
import { refusalWaitMs, unavailableWhenLate, waitLeftMs } from './waiting.ts'

/** The caller's account in the ledger. It may have to be read: within the time the caller waits, less a reserve. */
export const figuresFor = (
  { ledger }: CallDependencies,
  call: Pick<AdmittedCall, 'key' | 'startedMs' | 'atMs'>,
  { keptMs = 0, ...question }: Omit<FiguresQuestion, 'atMs'> & { readonly keptMs?: number } = {},
): Promise<Figures> =>
  unavailableWhenLate(ledger.figures(call.key.organizationId, { ...question, atMs: call.atMs }), {
    waitMs: waitLeftMs(call) - keptMs,
    what: 'the ledger',
  })

/** The balance, from the ledger or as last known: an answer without a charge does not wait for an unavailable ledger. */
export const balanceTold = (
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
