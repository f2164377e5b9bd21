import { setTimeout as sleep } from 'node:timers/promises'
import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import { createOutage, type Outage } from '../../concurrency/outage.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import type { LotFill } from '../../events/credits.ts'
import { type Committed, LedgerChanged, type LedgerCommand, refundKeyOf } from '../command.ts'
import { costAsOf } from '../explain/call-costs.ts'
import { type LotPlaces, type LotsPaying, lotsDrawn } from '../explain/lots-drawn.ts'
import { isUnrepeatable } from './batch.ts'
import type { WriterOptions } from './options.ts'
import type { Queued } from './queue.ts'

/**
 * Reverses the charge of a call without an Idempotency-Key if the caller was answered that the outcome is unknown, because this caller cannot
 * repeat the call safely. With a key, no reversal is needed, because a repeated call is charged only once.
 *
 * Reversals that are due are only in the memory of this process. If it must stop before they are written, it logs them for "ledger reverse".
 */
export class Reversals {
  readonly #organizationId: string
  readonly #options: WriterOptions
  readonly #submit: (command: LedgerCommand) => Promise<Committed>
  readonly #trouble: Outage
  /** The request ids of the calls whose charges are not reversed yet. */
  readonly #owed = new Set<string>()
  #idle: PromiseWithResolvers<void> | undefined

  constructor(
    organizationId: string,
    options: WriterOptions,
    submit: (command: LedgerCommand) => Promise<Committed>,
  ) {
    this.#organizationId = organizationId
    this.#options = options
    this.#submit = submit
    const what = `ledger: writing reversals of ${organizationId}`
    this.#trouble = createOutage({ logger: options.logger, what, level: 'error' })
  }

  /** Must be called when a command is durable after its caller was answered that the outcome is unknown. */
  written({ command, firstEventId }: Queued, { events, revision }: Committed): void {
    const { requestId } = command
    if (!isUnrepeatable(command) || requestId === undefined) return
    for (const event of events)
      if (event.type === 'CreditCharged') {
        const { charge_id: chargeId, amount } = event.data
        void this.#giveBack(requestId, {
          firstEventId,
          chargeId,
          amount: parseCredits(amount),
          revision,
          calledMs: command.atMs,
          cost: { charge: event.data, adjustments: [] },
        })
      }
  }

  requestIds(): string[] {
    return [...this.#owed]
  }

  settled(): Promise<void> {
    if (this.#owed.size === 0) return Promise.resolve()
    this.#idle ??= Promise.withResolvers()
    return this.#idle.promise
  }

  /** Retries until the reversal is written. Never rejects. */
  async #giveBack(requestId: string, charge: Charged): Promise<void> {
    const { eventLog, logger, clock, limits, observe } = this.#options
    const organizationId = this.#organizationId
    this.#owed.add(requestId)
    logger.warn(
      { organizationId, requestId },
      'ledger: a call whose outcome was reported as unknown was charged; its charge is being reversed',
    )
    for (let left = charge; left.amount > 0n; await sleep(pauses * limits.retryPauseMs)) {
      try {
        const into = await lotsDrawn({ eventLog, lotPlaces: this.#lotPlaces }, organizationId, left.cost)
        const { events } = await this.#submit(reversalCommand({ ...left, into }, clock.now()))
        if (left.isRest === true || givenBackBy(events) >= left.amount) {
          observe?.reversal?.()
          break
        }
        // Less was reversed, because an operator had already refunded a part of the charge under the same key.
        left = { ...((await this.#leftOf(charge)) ?? left), isRest: true }
      } catch (error) {
        if (!(error instanceof LedgerChanged)) this.#trouble.failed(error)
        else left = { ...((await this.#leftOf(charge)) ?? left), isRest: left.isRest }
      }
    }
    this.#trouble.works()
    this.#owed.delete(requestId)
    if (this.#owed.size > 0) return
    this.#idle?.resolve()
    this.#idle = undefined
  }

  /** Returns no places if the read models cannot be read, so that the lots are found in the ledger. */
  #lotPlaces: LotPlaces = async (organizationId, grantIds) => {
    try {
      return (await this.#options.lotPlaces?.(organizationId, grantIds)) ?? []
    } catch (error) {
      this.#options.logger.warn(
        { err: error, organizationId },
        'ledger: lots are searched in the ledger from its start',
      )
      return []
    }
  }

  /** The rest of the charge after refunds and re-rates, or undefined if the ledger cannot be read. */
  async #leftOf(charge: Charged): Promise<Charged | undefined> {
    const { chargeId, revision } = charge
    try {
      // The call is the event before its charge.
      const cost = await costAsOf(this.#options, this.#organizationId, { chargeId, from: revision - 1 })
      return { ...charge, amount: cost.now, asOf: cost.asOf, cost }
    } catch (error) {
      this.#trouble.failed(error)
      return undefined
    }
  }
}

/** The pause between two attempts to write a reversal, as a multiple of the pause between two attempts to append. */
const pauses = 20

type Reversible = {
  /** The first event id of the call. */
  readonly firstEventId: string
  readonly chargeId: string
  /** The cost of the call as of `asOf`. */
  readonly amount: MicroCredits
  readonly revision: number
  /** The time of the call, so that a statement shows if the call belongs to an earlier month. */
  readonly calledMs: number
  /** Default: `revision`. */
  readonly asOf?: number
  /**
   * Whether a part was already refunded. The command then has its own key, and is refused if there is a later correction.
   */
  readonly isRest?: boolean | undefined
  /** The lots to which the amount returns. The rest becomes a new lot that never expires. */
  readonly into: readonly LotFill[]
}

type Charged = Omit<Reversible, 'into'> & { readonly cost: LotsPaying }

const givenBackBy = (events: readonly LedgerEvent[]): MicroCredits =>
  events.reduce(
    (sum, event) => (event.type === 'CreditAdjusted' ? sum + parseCredits(event.data.amount) : sum),
    0n,
  )

/**
 * The command that reverses a charge, only once even if several processes send it. Nothing is written if the call was refunded, or re-rated
 * after `asOf`.
 */
export const reversalCommand = (
  { firstEventId, chargeId, amount, revision, calledMs, into, asOf = revision, isRest = false }: Reversible,
  atMs: number,
): LedgerCommand => ({
  key: isRest ? `${refundKeyOf(firstEventId)}/rest` : refundKeyOf(firstEventId),
  absentUpTo: revision,
  atMs,
  actor: 'system',
  kind: 'adjust',
  adjusts: chargeId,
  amount,
  reason: 'the outcome of the call was not known in time',
  rerateRun: null,
  correction: 'reversal',
  into,
  chargedAt: new Date(calledMs).toISOString(),
  ...(isRest ? { unlessAdjustedAfter: asOf } : { unlessReratedAfter: asOf }),
})
