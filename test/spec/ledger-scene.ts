/** Changes to a partner's ledger other than calls, and the facts left by failed and repeated calls. */
import { randomUUID } from 'node:crypto'
import { grant } from '../../src/administration/credits/credits.ts'
import { parseCredits } from '../../src/billing/money.ts'
import type { Capability } from '../../src/events/capabilities.ts'
import { forgetAnswers } from '../../src/jobs/run.ts'
import type { House, LedgerFact, Partner } from '../support/house.ts'
import type { Bare, ExpectedRefusal } from './wire.ts'

export const chargesOf = async (house: House, { organizationId }: Partner): Promise<LedgerFact[]> =>
  (await house.eventsOf(organizationId)).filter(({ type }) => type === 'CreditCharged')

/** With another ledger, the house's own ledger does not know the grant yet. */
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

/** Does what a re-rating does: it corrects a charge, or with `adjusts` null the balance; `amount` is signed. */
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

/** The refusal of a call that cannot be paid. */
export const unpaid = (required: string, available: string): ExpectedRefusal => ({
  status: 402,
  error: 'payment_required',
  code: 'CREDIT_001',
  details: { required, available },
})

/** The refusal of a call that failed because of an outside system. */
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

/** A replayed call with an Idempotency-Key; `idempotent`: whether the charge was looked up for it. */
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

/** Runs the job that forgets answers under Idempotency-Keys, as if a day had passed. */
export const forget = async (house: House, { organizationId }: Partner): Promise<void> => {
  await house.query(
    `update idempotent_calls set answered_at = answered_at - interval '25 h' where organization_id = $1`,
    [organizationId],
  )
  await forgetAnswers(house.foundation.pool)
}

/** Simulates a process that died between its append and its answer, and the end of its claim a minute later. */
export const loseAnswers = async (house: House, { organizationId }: Partner): Promise<void> => {
  await house.query(
    `update idempotent_calls set status = null, answer = null, answered_at = null,
            claimed_at = now() - interval '2 min'
      where organization_id = $1`,
    [organizationId],
  )
}
