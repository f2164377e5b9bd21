import { z } from 'zod'
import { creditsText, formatCredits, parseCredits } from '../../billing/money.ts'
import { type Context, command, wholeOrNot } from '../declare.ts'
import {
  credits,
  creditsOrNone,
  expiry,
  id,
  number,
  organization,
  reason,
  reference,
  signedCredits,
} from '../fields.ts'
import { futureExpiryOf } from '../input.ts'
import { adjust, type Corrected, setThreshold, voidGrant } from './corrections.ts'
import { grant, grantOnce, previewGrant } from './credits.ts'
import { refund, requestIdForm } from './refunds.ts'

/** Commands that move credits by hand. Each result is printed after its event is durable. */

const doneBefore = (name: string | undefined): string =>
  `Nothing: it was done under the reference "${name}" already.`

const lot = z.object({
  organization: organization(),
  amount: credits({ label: 'Credits', help: 'credits, at most 6 decimals' }),
  expires_at: expiry({
    label: 'Expires (UTC)',
    help: 'what is left is worth nothing after the end of this day, UTC; on the command line also an ISO 8601 instant (default never)',
  }).optional(),
  priority: number(
    { label: 'Priority', help: '0 to 1000, lower is drawn first' },
    { min: 0, max: 1000 },
  ).prefault('100'),
  reason: reason().prefault('granted by operator'),
  reference: reference().optional(),
})

export const grantCredits = command({
  name: 'credits grant',
  action: 'credits.change',
  summary: 'grant a lot of credits',
  input: lot,
  changes: { of: 'money', asks: 'on a terminal', left: wholeOrNot('credits lots') },
  plan: async ({ foundation, operator }, input) => {
    const wanted = { ...lotOf(input), actor: operator.actor }
    const { already, balanceAfter } = await previewGrant(foundation, wanted)
    const [amount, balance] = [formatCredits(input.amount), formatCredits(balanceAfter)]
    const until = wanted.expiresAt === null ? 'that never expires' : `that expires at ${wanted.expiresAt}`
    return {
      says: [
        already
          ? `Nothing: a lot of ${creditsText(amount)} was granted under the reference "${input.reference}" already.`
          : `Grant ${input.organization} a lot of ${creditsText(amount)} ${until}: its balance becomes ${balance}.`,
      ],
      ...(already && ({ asks: 'never', nothing: true } as const)),
      json: {
        already_granted: already,
        organization_id: input.organization,
        grant_id: null,
        amount,
        expires_at: wanted.expiresAt,
        priority: input.priority,
        reason: input.reason,
        reference: input.reference ?? null,
        balance,
      },
    }
  },
  run: async ({ foundation, operator }, input) => {
    const { reference, ...wanted } = { ...lotOf(input), actor: operator.actor }
    const { granted, balance, revision, already } =
      reference === undefined
        ? { ...(await grant(foundation, wanted)), already: false }
        : await grantOnce(foundation, { ...wanted, reference })
    const { grant_id, amount, expires_at, priority, reason } = granted
    return {
      json: {
        organization_id: input.organization,
        ...{ grant_id, amount, expires_at, priority, reason },
        reference: granted.reference,
        already_granted: already,
        balance: formatCredits(balance),
        revision,
      },
    }
  },
})

/** Throws `InputFault` for a lot that would have expired. Under a reference it may have been granted before it expired. */
const lotOf = ({ organization, amount, expires_at, priority, reason, reference }: z.output<typeof lot>) => ({
  organizationId: organization,
  expiresAt:
    expires_at === undefined || reference !== undefined
      ? (expires_at ?? null)
      : futureExpiryOf('expires-at', expires_at, Date.now()),
  ...{ amount, priority, reason },
  ...(reference !== undefined && { reference }),
})

export const voidLot = command({
  name: 'credits void',
  action: 'credits.change',
  summary: 'take back what is left of a lot',
  input: z.object({
    organization: organization(),
    grant: id(
      { label: 'Lot', help: 'grant_id, as "credits lots" shows it' },
      /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
      '0197a2c4-5d1e-5b7a-8f00-3c2b1a9d8e7f',
    ),
    reason: reason(),
  }),
  changes: { of: 'money', asks: 'always', left: wholeOrNot('credits lots') },
  plan: async ({ foundation, operator }, { organization, grant, reason }) => {
    const asked = { organizationId: organization, grantId: grant, reason, actor: operator.actor }
    const would = await voidGrant(foundation, { ...asked, dryRun: true })
    const taken = would.adjusted.amount.replace(/^-/, '')
    return {
      says: [
        `Take back ${creditsText(taken)} of ${organization}, what is left of the lot ${grant}: its balance becomes ${formatCredits(would.balance)}.`,
      ],
      json: { organization_id: organization, grant_id: grant, ...correctionJson(would) },
    }
  },
  run: async ({ foundation, operator }, { organization, grant, reason }) => {
    const asked = { organizationId: organization, grantId: grant, reason, actor: operator.actor }
    const done = await voidGrant(foundation, { ...asked, dryRun: false })
    return { json: { organization_id: organization, grant_id: grant, ...correctionJson(done) } }
  },
})

const adjustmentJson = ({ organization, reference }: z.output<typeof adjustment>, done: Corrected) => ({
  organization_id: organization,
  ...correctionJson(done),
  reference: reference ?? null,
  already_adjusted: done.already,
})

const adjustment = z.object({
  organization: organization(),
  amount: signedCredits({ label: 'Credits', help: 'credits, at most 6 decimals; -5 takes 5' }),
  reason: reason(),
  reference: reference().optional(),
})

export const adjustBalance = command({
  name: 'credits adjust',
  action: 'credits.change',
  summary: 'give credits, or take them (a negative amount)',
  input: adjustment,
  changes: { of: 'money', asks: 'always', left: wholeOrNot('credits balance') },
  plan: async ({ foundation, operator }, input) => {
    const { organization: organizationId, amount: signed, reason, reference } = input
    const asked = { organizationId, amount: signed, reason, reference, actor: operator.actor }
    const would = await adjust(foundation, { ...asked, dryRun: true })
    const amount = formatCredits(signed < 0n ? -signed : signed)
    const verb = signed < 0n ? `Take ${creditsText(amount)} from` : `Give ${creditsText(amount)} to`
    return {
      says: [
        would.already
          ? doneBefore(reference)
          : `${verb} ${organizationId}: its balance becomes ${formatCredits(would.balance)}.`,
      ],
      // Credits that were given can be taken back; calls refused in the meantime stay refused.
      asks: would.already ? 'never' : signed < 0n ? 'always' : 'on a terminal',
      ...(would.already && ({ nothing: true } as const)),
      json: adjustmentJson(input, would),
    }
  },
  run: async ({ foundation, operator }, input) => {
    const { organization: organizationId, amount, reason, reference } = input
    const asked = { organizationId, amount, reason, reference, actor: operator.actor }
    return { json: adjustmentJson(input, await adjust(foundation, { ...asked, dryRun: false })) }
  },
})

const refundOfCall = z.object({
  request: id({ label: 'Call', help: 'request_id of the call' }, requestIdForm, '01M7YKBQZN92PN3ABTVNQE6E12'),
  amount: credits({
    label: 'Credits',
    help: 'credits, at most 6 decimals (default: all that the call still costs)',
  }).optional(),
  reason: reason(),
  reference: reference().optional(),
  organization: organization({
    help: 'organization id; needed only where no statement has the call yet',
  }).optional(),
})

export const refundCall = command({
  name: 'credits refund',
  action: 'credits.change',
  summary: 'give back what a call cost, or a part of it, into the lots it was drawn from',
  input: refundOfCall,
  changes: { of: 'money', asks: 'on a terminal', left: wholeOrNot('ledger explain') },
  plan: async (context, input) => {
    const { organizationId, adjusted, already, json } = await refunded(context, input, true)
    if (already) return { says: [doneBefore(input.reference)], asks: 'never', nothing: true, json }
    return {
      says: [
        `Give ${organizationId} ${creditsText(adjusted.amount)} of call ${input.request} back, which then costs ${json.costs_now} of the ${json.charged} it was charged: the balance becomes ${json.balance}.`,
      ],
      json,
    }
  },
  run: async (context, input) => ({ json: (await refunded(context, input, false)).json }),
})

const refunded = async (
  { foundation, operator, progress }: Context,
  { request, organization, amount, reason, reference }: z.output<typeof refundOfCall>,
  dryRun: boolean,
) => {
  const done = await refund(foundation, {
    ...{ requestId: request, organizationId: organization, amount, reason, reference, dryRun },
    actor: operator.actor,
    onProgress: (events) => progress(`${events} events since the call`),
  })
  const json = {
    request_id: request,
    organization_id: done.organizationId,
    charge_id: done.chargeId,
    charged: formatCredits(done.charged),
    costs_now: formatCredits(done.costs),
    ...correctionJson(done),
    reference: reference ?? null,
    already_refunded: done.already,
  }
  return { ...done, json }
}

/** The result of a correction, or the expected result of a plan. `into` and `from` are lots. */
const correctionJson = ({ adjusted, balance, revision }: Corrected) => {
  const { amount, reason, overdraft_repaid, fills, allocations, adjustment_id } = adjusted
  const rest = fills.reduce(
    (left, fill) => left - parseCredits(fill.amount),
    parseCredits(amount) - parseCredits(overdraft_repaid),
  )
  return {
    dry_run: revision === null,
    adjustment_id: revision === null ? null : adjustment_id,
    ...{ amount, reason, overdraft_repaid },
    into: fills.map(({ grant_id, amount, expires_at }) => ({ grant_id, amount, expires_at })),
    new_lot: rest > 0n ? formatCredits(rest) : null,
    from: allocations,
    balance: formatCredits(balance),
    revision,
  }
}

export const warnBelow = command({
  name: 'credits threshold',
  action: 'credits.change',
  summary: 'set the balance below which the organization is notified (balance.low)',
  input: z.object({
    organization: organization(),
    amount: creditsOrNone({ label: 'Below, credits', help: 'credits, or "none" for no more notices' }),
  }),
  changes: { of: 'settings', asks: 'never', left: wholeOrNot('event-log show') },
  plan: async (_, { organization, amount }) => ({
    says: [
      amount === null
        ? `Stop notifying ${organization} of a low balance.`
        : `Notify ${organization} when its balance falls below ${formatCredits(amount)}.`,
    ],
  }),
  run: async ({ foundation, operator }, { organization: organizationId, amount }) => {
    const { revision } = await setThreshold(foundation, { organizationId, amount, actor: operator.actor })
    const threshold = amount === null ? null : formatCredits(amount)
    return { json: { organization_id: organizationId, threshold, revision } }
  },
})

export const creditCommands = [grantCredits, voidLot, adjustBalance, refundCall, warnBelow]
