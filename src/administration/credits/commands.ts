import { z } from 'zod'
import { creditsText, formatCredits, parseCredits } from '../../billing/money.ts'
import { type Context, command, type Lists, type Sections } from '../declare.ts'
import {
  apiKey,
  call,
  credits,
  creditsOrNone,
  expiry,
  instant,
  list,
  number,
  organization,
  reason,
  reference,
  requestIdOf,
  signedCredits,
  uuid,
} from '../fields.ts'
import { futureExpiryOf, InputFault } from '../input.ts'
import { certainKey } from '../keys/api-keys.ts'
import { adjust, type Corrected, setThreshold, voidGrant } from './corrections.ts'
import { grant, grantOnce, previewGrant } from './credits.ts'
import {
  type CallChoice,
  type ChosenCalls,
  chooseCalls,
  commonReferenceOf,
  listedMax,
  planRefunds,
  type Refunds,
  refundChosen,
} from './refund-calls.ts'
import { refund } from './refunds.ts'

/** Commands that grant, adjust and refund credits. A result is shown only after its event is durable. */

const doneBefore = (name: string | undefined): string =>
  `Nothing to do: this was already done under the reference "${name}".`

const lot = z.object({
  organization: organization(),
  amount: credits({ label: 'Credits', help: 'credits, with up to 6 decimal places' }),
  expires_at: expiry({
    label: 'Expires (UTC)',
    help: 'the rest of the lot expires at the end of this day, UTC (default: never)',
  }).optional(),
  priority: number(
    { label: 'Priority', help: '0 to 1000; lots with a lower number are used first' },
    { min: 0, max: 1000 },
  ).prefault('100'),
  reason: reason().prefault('granted by operator'),
  reference: reference().optional(),
})

const grantCredits = command({
  name: 'credits grant',
  action: 'credits.change',
  summary: 'grant credits to an organization',
  input: lot,
  changes: { of: 'money', asks: 'on a terminal' },
  plan: async ({ foundation, operator }, input) => {
    const wanted = { ...lotOf(input), actor: operator.actor }
    const { already, balanceAfter } = await previewGrant(foundation, wanted)
    const [amount, balance] = [formatCredits(input.amount), formatCredits(balanceAfter)]
    const until = wanted.expiresAt === null ? 'that never expires' : `that expires at ${wanted.expiresAt}`
    return {
      says: [
        already
          ? `Nothing to do: a grant of ${creditsText(amount)} was already made under the reference "${input.reference}".`
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
        grant_id,
        amount,
        expires_at,
        priority,
        reason,
        reference: granted.reference,
        already_granted: already,
        balance: formatCredits(balance),
        revision,
      },
    }
  },
})

/**
 * Throws `InputFault` if the lot would already have expired. If a reference is given, the expiry is checked later, because the lot
 * may already have been granted under that reference.
 */
const lotOf = ({ organization, amount, expires_at, priority, reason, reference }: z.output<typeof lot>) => ({
  organizationId: organization,
  expiresAt:
    expires_at === undefined || reference !== undefined
      ? (expires_at ?? null)
      : futureExpiryOf('expires-at', expires_at, Date.now()),
  amount,
  priority,
  reason,
  ...(reference !== undefined && { reference }),
})

const restOfLot = z.object({
  organization: organization(),
  grant: uuid({ label: 'Lot', help: 'grant_id, as in "credits lots"' }),
  reason: reason(),
})

const correctionLists = {
  into: {
    label: 'Lots that received credits',
    columns: [
      { name: 'grant_id', label: 'Lot', kind: 'id' },
      { name: 'amount', label: 'Credits', kind: 'credits' },
      { name: 'expires_at', label: 'Expires (UTC)', kind: 'instant', sparse: true },
    ],
  },
  from: {
    label: 'Lots from which credits were taken',
    columns: [
      { name: 'grant_id', label: 'Lot', kind: 'id' },
      { name: 'amount', label: 'Credits', kind: 'credits' },
    ],
  },
} satisfies Lists

const voidLot = command({
  name: 'credits void',
  action: 'credits.change',
  summary: 'take back the rest of a lot',
  input: restOfLot,
  lists: correctionLists,
  changes: { of: 'money', asks: 'always' },
  plan: async (context, input) => {
    const json = await voided(context, input, true)
    return {
      says: [
        `Take back ${creditsText(json.amount.replace(/^-/, ''))} from ${input.organization}, the rest of the lot ${input.grant}: its balance becomes ${json.balance}.`,
      ],
      json,
    }
  },
  run: async (context, input) => ({ json: await voided(context, input, false) }),
})

const voided = async (
  { foundation, operator: { actor } }: Context,
  { organization: organizationId, grant: grantId, reason }: z.output<typeof restOfLot>,
  dryRun: boolean,
) => {
  const done = await voidGrant(foundation, { organizationId, grantId, reason, actor, dryRun })
  return { organization_id: organizationId, grant_id: grantId, ...correctionJson(done) }
}

const adjustment = z.object({
  organization: organization(),
  amount: signedCredits({
    label: 'Credits',
    help: 'credits, with up to 6 decimal places; -5 removes 5 credits',
  }),
  reason: reason(),
  reference: reference().optional(),
})

const adjustBalance = command({
  name: 'credits adjust',
  action: 'credits.change',
  summary: 'add credits, or remove credits with a negative amount',
  input: adjustment,
  lists: correctionLists,
  changes: { of: 'money', asks: 'always' },
  plan: async (context, input) => {
    const { organization: organizationId, amount: signed, reference } = input
    const json = await adjusted(context, input, true)
    const already = json.already_adjusted
    const amount = formatCredits(signed < 0n ? -signed : signed)
    const verb = signed < 0n ? `Take ${creditsText(amount)} from` : `Give ${creditsText(amount)} to`
    return {
      says: [
        already ? doneBefore(reference) : `${verb} ${organizationId}: its balance becomes ${json.balance}.`,
      ],
      // Removing credits always needs consent, because calls that are refused in the meantime stay refused. Added credits can be
      // removed again.
      asks: already ? 'never' : signed < 0n ? 'always' : 'on a terminal',
      ...(already && ({ nothing: true } as const)),
      json,
    }
  },
  run: async (context, input) => ({ json: await adjusted(context, input, false) }),
})

const adjusted = async (
  { foundation, operator: { actor } }: Context,
  { organization: organizationId, ...asked }: z.output<typeof adjustment>,
  dryRun: boolean,
) => {
  const done = await adjust(foundation, { ...asked, organizationId, actor, dryRun })
  return {
    organization_id: organizationId,
    ...correctionJson(done),
    reference: asked.reference ?? null,
    already_adjusted: done.already,
  }
}

const refundOfCall = z.object({
  request: call(),
  amount: credits({
    label: 'Credits',
    help: 'credits, with up to 6 decimal places (default: the remaining cost of the call)',
  }).optional(),
  reason: reason(),
  reference: reference().optional(),
  organization: organization({
    help: 'organization id; needed only if no statement contains the call yet',
  }).optional(),
})

const refundCall = command({
  name: 'credits refund',
  action: 'credits.change',
  summary: 'refund a call, or a part of its cost; the credits return to the lots that paid for it',
  input: refundOfCall,
  lists: correctionLists,
  changes: { of: 'money', asks: 'on a terminal' },
  plan: async (context, input) => {
    const { organizationId, adjusted, already, json } = await refunded(context, input, true)
    if (already) return { says: [doneBefore(input.reference)], asks: 'never', nothing: true, json }
    return {
      says: [
        `Refund ${organizationId} ${creditsText(adjusted.amount)} of call ${input.request}, which then costs ${json.costs_now} instead of ${json.charged}: the balance becomes ${json.balance}.`,
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
    requestId: request,
    organizationId: organization,
    amount,
    reason,
    reference,
    dryRun,
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
    amount,
    reason,
    overdraft_repaid,
    into: fills.map(({ grant_id, amount, expires_at }) => ({ grant_id, amount, expires_at })),
    new_lot: rest > 0n ? formatCredits(rest) : null,
    from: allocations,
    balance: formatCredits(balance),
    revision,
  }
}

const listedOf = (ids: readonly string[]): readonly string[] => {
  const requestIds = ids.map((one) => requestIdOf('requests', one))
  if (ids.length > listedMax)
    throw new InputFault(
      'requests',
      `at most ${listedMax}; there are ${ids.length}: choose a time range instead`,
    )
  return [...new Set(requestIds)]
}

/** Fields that choose which calls of a key are refunded. */
export const callFields = {
  from: instant({
    label: 'Calls from (UTC)',
    help: 'refund the calls of the key from this instant on',
  }).optional(),
  to: instant({
    label: 'Calls before (UTC)',
    help: 'refund no calls from this instant on (default: now)',
  }).optional(),
  requests: list(listedOf, {
    label: 'Calls by id',
    help: 'refund these calls instead of a time range: comma-separated request ids',
  }).optional(),
}

/** Throws `InputFault` if both a list of calls and a time range are given, or if the range ends before it begins. */
export const choiceOf = ({
  from,
  to,
  requests,
}: {
  readonly from?: string | undefined
  readonly to?: string | undefined
  readonly requests?: readonly string[] | undefined
}): CallChoice => {
  if (requests !== undefined && (from ?? to) !== undefined)
    throw new InputFault(
      'requests',
      'choose calls by time or by id, not by both: leave the times empty, or the ids',
    )
  if (requests !== undefined) return { kind: 'listed', requestIds: requests }
  if (from === undefined && to !== undefined)
    throw new InputFault('from', 'a start is required if an end is given')
  if (from === undefined) return null
  if (to !== undefined && Date.parse(to) <= Date.parse(from))
    throw new InputFault('to', `${to} is not after ${from}`)
  return { kind: 'between', from, to: to ?? null }
}

/** The effect of refunds, as sentences. */
export const refundsSaid = ({ calls, free, refunds, credits, already, left }: Refunds): readonly string[] => [
  refunds === 0
    ? `Nothing to refund in ${callsText(calls)}.`
    : `Refund ${creditsText(formatCredits(credits))} of ${callsText(refunds)}.`,
  ...(free === 0 ? [] : [`${callsText(free)} cost nothing.`]),
  ...(already === 0 ? [] : [`Already refunded under this reference: ${callsText(already)}.`]),
  ...(left.length === 0 ? [] : [`${callsText(left.length)} cannot be refunded; the list shows why.`]),
]

const callsText = (calls: number): string => (calls === 1 ? '1 call' : `${calls} calls`)

export const refundsJson = ({ calls, free, refunds, credits, already, left }: Refunds) => ({
  calls,
  free,
  refunded: refunds,
  already_refunded: already,
  credits: formatCredits(credits),
  not_refunded: left.map(({ requestId, why }) => ({ request_id: requestId, why })),
})

/** The output for people shows the calls that were not refunded after the figures. */
const refundsSections = (json: { readonly not_refunded: readonly object[] }): Sections => {
  const { not_refunded: left, ...figures } = json
  return [figures, ...(left.length === 0 ? [] : ['Not refunded', left])]
}

const refundOfCalls = z.object({
  key: apiKey(),
  ...callFields,
  reason: reason(),
  reference: reference(),
  organization: organization({
    help: 'organization id; if given, keys of other organizations are refused',
  }).optional(),
})

const chosenBy = async (
  { foundation, progress, requestedAt }: Context,
  { key: keyId, organization: organizationId, ...input }: z.output<typeof refundOfCalls>,
): Promise<{ chosen: ChosenCalls; reference: string; of: object }> => {
  const reference = commonReferenceOf(input.reference)
  const asked = choiceOf(input)
  if (asked === null) throw new InputFault('from', 'choose calls by time or by id')
  // Without an end, the range ends at the time of the request, because the plan that the person saw contains no later calls.
  const choice = asked.kind === 'between' ? { ...asked, to: asked.to ?? requestedAt } : asked
  const key = await certainKey(foundation, { keyId, organizationId })
  const of = { organization_id: key.organizationId, api_key_id: keyId, reference }
  return { chosen: await chooseCalls(foundation, { ...key, choice }, progress), reference, of }
}

export const refundCallsOfKey = command({
  name: 'credits refund-calls',
  action: 'credits.change',
  summary: 'refund the remaining cost of calls of an API key',
  input: refundOfCalls,
  changes: { of: 'money', asks: 'on a terminal' },
  long: 'repeatable',
  plan: async (context, input) => {
    const { chosen, reference, of } = await chosenBy(context, input)
    const would = await planRefunds(context.foundation, chosen, reference)
    const json = { ...of, ...refundsJson(would) }
    const nothing = would.refunds === 0 && chosen.unknown.length === 0
    return {
      says: refundsSaid(would),
      json,
      sections: refundsSections(json),
      ...(nothing && ({ asks: 'never', nothing: true } as const)),
    }
  },
  run: async (context, input) => {
    const { chosen, reference, of } = await chosenBy(context, input)
    const { foundation, operator, progress: onProgress } = context
    const done = await refundChosen(foundation, chosen, {
      reference,
      reason: input.reason,
      actor: operator.actor,
      onProgress,
    })
    const json = { ...of, ...refundsJson(done) }
    return { json, sections: refundsSections(json), failed: chosen.unknown.length > 0 }
  },
})

const warnBelow = command({
  name: 'credits threshold',
  action: 'credits.change',
  summary:
    'set the low-balance threshold; the organization is notified when its balance falls below it (balance.low)',
  input: z.object({
    organization: organization(),
    amount: creditsOrNone({ label: 'Threshold, credits', help: 'credits, or "none" to stop notices' }),
  }),
  changes: { of: 'settings', asks: 'never' },
  plan: async (_, { organization, amount }) =>
    amount === null
      ? `Stop notifying ${organization} about a low balance.`
      : `Notify ${organization} when its balance falls below ${formatCredits(amount)}.`,
  run: async ({ foundation, operator }, { organization: organizationId, amount }) => {
    const { revision } = await setThreshold(foundation, { organizationId, amount, actor: operator.actor })
    const threshold = amount === null ? null : formatCredits(amount)
    return { json: { organization_id: organizationId, threshold, revision } }
  },
})

export const declarations = [grantCredits, voidLot, adjustBalance, refundCall, refundCallsOfKey, warnBelow]
