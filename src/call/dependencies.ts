import type { Logger } from 'pino'
import type { MicroCredits } from '../billing/money.ts'
import type { Gate } from '../concurrency/gate.ts'
import type { CallOutcome } from '../events/calls.ts'
import type { Capability } from '../events/capabilities.ts'
import type { AuthenticationFailure } from '../guard/authenticate.ts'
import type { KeyDirectory } from '../guard/key-directory.ts'
import type { RateLimiter, RatePolicy } from '../guard/limits/rate-limit.ts'
import type { Secrets } from '../guard/secrets/secrets.ts'
import type { PriceBooks } from '../ledger/prices/price-books.ts'
import type { Ledger } from '../ledger/write/ledger.ts'
import type { Idempotency } from './idempotency.ts'
import type { Overload } from './overload.ts'
import type { RefusedCalls } from './refused-calls.ts'
import type { UnauthenticatedRequests } from './unauthenticated.ts'

/** The availability of the event log and the database. */
export type Gates = Readonly<Record<'eventLog' | 'database', Pick<Gate, 'refuses' | 'shutForMs'>>>

/** Shared by all calls of a process. */
export type CallDependencies = {
  readonly directory: KeyDirectory
  readonly secrets: Secrets
  readonly limiter: RateLimiter
  readonly refusedCalls: RefusedCalls
  readonly overload: Overload
  readonly unauthenticated: UnauthenticatedRequests
  readonly ledger: Ledger
  readonly prices: PriceBooks
  readonly idempotency: Idempotency
  /** Shut while the event log or the database does not answer; absent if nothing watches them. */
  readonly gates?: Gates
  /** Whether the disk is too full to record another call. */
  readonly isFull?: () => boolean
  /** Whether this host's clock and the database's differ by too much. */
  readonly clocksDiffer?: () => boolean
  readonly requestIds: (nowMs: number) => string
  readonly clock: { now(): number }
  readonly logger: Logger
  readonly observe?: CallObserver
}

/** Reports calls for monitoring. Used by every call, so it must be cheap. */
export type CallObserver = {
  /** Called when an answer is sent. `code` is the error code of a refused or failed call. A replay counts as answered. */
  answered(
    capability: Capability,
    outcome: CallOutcome,
    code: string | undefined,
    seconds: number,
    chargedMicro: MicroCredits,
  ): void
  notAuthenticated(reason: AuthenticationFailure): void
  rateLimited(policy: RatePolicy): void
}
