/** Changes to a partner's ledger other than calls, and the expected facts of failed and repeated calls. */
import { randomUUID } from 'node:crypto'
import { grant } from '../../src/administration/credits/credits.ts'
import { parseCredits } from '../../src/billing/money.ts'
import type { Capability } from '../../src/events/capabilities.ts'
import { forgetAnswers } from '../../src/jobs/own-jobs.ts'
import type { House, LedgerFact, Partner } from '../support/house.ts'
import type { Bare, ExpectedRefusal } from './wire.ts'

export const chargesOf = async (house: House, { organizationId }: Partner): Promise<LedgerFact[]> =>
  (await house.eventsOf(organizationId)).filter(({ type }) => type === 'CreditCharged')

/** Grants credits. If `ledger` belongs to another process, the house's own ledger has not read the grant yet. */
export const buy = (
  house: House,
  { organizationId }: Partner,
  amount: string,
  ledger = house.foundation.ledger,
): Promise<unknown> =>
  grant(
    { ...house.foundation, ledger },
    {
      organizationId,
      amount: parseCredits(amount),
      priority: 100,
      expiresAt: null,
      reason: 'bought',
      actor: 'cli',
    },
  )

/** Corrects a charge as a re-rating does, or the balance if `adjusts` is null. `amount` is signed. */
export const rerate = (
  house: House,
  { organizationId }: Partner,
  { amount, adjusts }: { amount: string; adjusts: string | null },
  ledger = house.foundation.ledger,
): Promise<unknown> => {
  return ledger.submit(organizationId, {
    key: `rerate/${randomUUID()}`,
    atMs: Date.now(),
    actor: 'cli',
    kind: 'adjust',
    adjusts,
    amount: parseCredits(amount),
    reason: 'priced anew',
    rerateRun: 'a-run',
  })
}

/** The expected refusal of a call that the balance does not cover. */
export const unpaid = (required: string, available: string): ExpectedRefusal => ({
  status: 402,
  error: 'payment_required',
  code: 'CREDIT_001',
  details: { required, available },
})

/** The expected refusal of a call because an outside system failed. */
export const unavailable: ExpectedRefusal = {
  status: 503,
  error: 'service_unavailable',
  code: 'SYS_002',
  details: {},
}

export const failureFact = ({ keyId }: Partner, capability: Capability): Bare => ({
  type: 'KeyUsed',
  data: {
    key_id: keyId,
    capability,
    outcome: 'failed',
    code: 'SYS_002',
    facts: { kind: 'refusal', code: 'SYS_002' },
    free_by: { rule: 'refusal', rule_version: 1 },
  },
})

/** The fact of a replayed call. `idempotent`: whether the charge was looked up for its Idempotency-Key. */
export const replayFact = (
  { keyId }: Partner,
  capability: Capability = 'ip_lookup',
  more: { idempotent?: true } = {},
): Bare => ({
  type: 'KeyUsed',
  data: {
    key_id: keyId,
    capability,
    outcome: 'answered',
    facts: { kind: 'replay' },
    free_by: { rule: 'replay', rule_version: 1 },
    ...more,
  },
})

/** Runs the job that deletes answers stored under Idempotency-Keys, as if a day had passed. */
export const forget = async (house: House, { organizationId }: Partner): Promise<void> => {
  await house.query(
    `update idempotent_calls set answered_at = answered_at - interval '25 h' where organization_id = $1`,
    [organizationId],
  )
  await forgetAnswers(house.foundation.pool)
}

/** Simulates a process that died between its append and its answer, and whose claim ended a minute later. */
export const loseAnswers = async (house: House, { organizationId }: Partner): Promise<void> => {
  await house.query(
    `update idempotent_calls set status = null, answer = null, answered_at = null,
            claimed_at = now() - interval '2 min'
      where organization_id = $1`,
    [organizationId],
  )
}
