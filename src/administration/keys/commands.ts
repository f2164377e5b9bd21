import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { type ApiKeyRow, keysAfter } from '../../../projections/api-keys.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { permission } from '../../events/capabilities.ts'
import type { KeyLimits } from '../../events/keys.ts'
import { keyId as keyIdForm } from '../../events/primitives.ts'
import { testOrganizationOf } from '../../events/test-organization.ts'
import { graceDaysMax, type KeyState } from '../../keys/key-state.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { callFields, choiceOf, refundCallsOfKey, refundsJson, refundsSaid } from '../credits/commands.ts'
import { balance } from '../credits/credits.ts'
import { chooseCalls, commonReferenceOf, planRefunds, refundChosen } from '../credits/refund-calls.ts'
import { type Context, command, pagedList, pageUpTo } from '../declare.ts'
import {
  apiKey,
  duration,
  expiry,
  flag,
  line,
  list,
  number,
  organization,
  reason,
  reference,
} from '../fields.ts'
import { futureExpiryOf, InputFault } from '../input.ts'
import { requestLongWork, workerRuns } from '../jobs/long-work.ts'
import {
  certainKey,
  changeLimits,
  checkPartnerLimits,
  defaultKeyLimits,
  hasExpired,
  isIssued,
  issueKey,
  keyToChange,
  openTestOrganization,
  replaceLeaked,
  revoke,
  rotate,
} from './api-keys.ts'
import {
  allowedCidrsOf,
  checkPartnerPermissions,
  limitNames,
  limitWords,
  permissionsByDefault,
  permissionsOf,
} from './key-request.ts'

const limit = (name: keyof KeyLimits) => number(limitWords[name], { min: 1, max: limitWords[name].max })

/** This field comes last, because on the command line the id of a key is enough. */
const ofKey = organization({
  help: 'organization id; if given, keys of other organizations are refused',
}).optional()

const issueInput = z.object({
  organization: organization(),
  name: line({ label: 'Name', help: 'purpose of the key, such as production' }).prefault('default'),
  permissions: list(
    permissionsOf,
    {
      label: 'Permissions',
      help: 'the calls that the key can make; only an operator can give ledger_read, which allows exports of the whole ledger',
    },
    permission.options,
  ).prefault(permissionsByDefault.join(',')),
  requests_per_minute: limit('requests_per_minute').prefault(String(defaultKeyLimits.requests_per_minute)),
  requests_per_day: limit('requests_per_day').prefault(String(defaultKeyLimits.requests_per_day)),
  email_validations_per_second: limit('email_validations_per_second').prefault(
    String(defaultKeyLimits.email_validations_per_second),
  ),
  allow: list(allowedCidrsOf, {
    label: 'Allowed from',
    help: 'comma-separated addresses or CIDR blocks, such as 203.0.113.0/24 (default: any address)',
  }).optional(),
  expires_at: expiry({
    label: 'Expires (UTC)',
    help: 'the key expires at the end of this day, UTC (default: never)',
  }).optional(),
  test: flag({
    label: 'Test key',
    help: 'calls are free, answered with invented data, and recorded in a separate ledger',
  }),
})

const issueOf = ({ operator }: Context, input: z.output<typeof issueInput>) => {
  const { name, permissions, allow = [], expires_at, test: _, organization: organizationId } = input
  const { requests_per_minute, requests_per_day, email_validations_per_second } = input
  const limits = { requests_per_minute, requests_per_day, email_validations_per_second }
  if (operator.role === 'partner') {
    checkPartnerLimits(limits, {})
    checkPartnerPermissions(permissions)
  }
  return {
    organizationId,
    name,
    permissions,
    limits,
    allowedCidrs: allow,
    actor: operator.actor,
    expiresAt: expires_at === undefined ? null : futureExpiryOf('expires-at', expires_at, Date.now()),
  }
}

/**
 * A partner cannot have more live keys, because each key has its own rate limits, and every process keeps all live keys in memory.
 * An operator can issue more. Rotation has a higher limit, so that a partner with the maximum number of keys can still rotate them.
 * The count can lag, so a few more keys than the limit are possible.
 */
const partnerKeysMax = { issue: 100, rotate: 200 } as const

const checkPartnerKeys = async (
  { foundation: { pool }, operator }: Context,
  organizationId: string,
  change: keyof typeof partnerKeysMax,
): Promise<void> => {
  if (operator.role !== 'partner') return
  const max = partnerKeysMax[change]
  const { rowCount } = await pool.query(
    `select from api_keys where organization_id = any($1) and revoked_at is null
        and (expires_at is null or expires_at > $2) and (grace_until is null or grace_until > $2) limit $3`,
    [[organizationId, testOrganizationOf(organizationId)], new Date(), max],
  )
  if (rowCount === max)
    throw new CommandRefused(
      `your organization already has ${max} keys: revoke keys that are no longer used, or ask the operator of the service`,
    )
}

const issue = command({
  name: 'key issue',
  action: 'keys.change',
  summary: 'issue an API key; it is shown once',
  input: issueInput,
  secret: 'api_key',
  changes: { of: 'access', asks: 'never' },
  plan: async (context, input) => {
    const { organizationId, permissions, allowedCidrs, expiresAt } = issueOf(context, input)
    const { name } = await balance(context.foundation, organizationId)
    await checkPartnerKeys(context, organizationId, 'issue')
    return `Issue ${name} (${organizationId}) a ${input.test ? 'test key' : 'key'} for ${permissions.join(', ')}, from ${allowedCidrs.length === 0 ? 'anywhere' : allowedCidrs.join(', ')}, ${expiresAt === null ? 'without expiry' : `until ${expiresAt}`}.`
  },
  run: async (context, input) => {
    const asked = issueOf(context, input)
    const { foundation } = context
    await checkPartnerKeys(context, asked.organizationId, 'issue')
    const organizationId = input.test ? await openTestOrganization(foundation, asked) : asked.organizationId
    const { keyId, apiKey } = await issueKey(foundation, { ...asked, organizationId })
    return {
      json: {
        organization_id: organizationId,
        api_key_id: keyId,
        api_key: apiKey,
        name: asked.name,
        permissions: asked.permissions,
        rate_limits: asked.limits,
        allowed_cidrs: asked.allowedCidrs,
        expires_at: asked.expiresAt,
      },
    }
  },
})

const rotateKey = command({
  name: 'key rotate',
  action: 'keys.change',
  summary:
    'issue a successor of an API key; the successor is shown once, and the old key still works for a grace period',
  input: z.object({
    key: apiKey(),
    grace: duration(
      {
        label: 'Grace period',
        help: `such as 15m, 24h or 7d, at most ${graceDaysMax}d; 0s ends the old key immediately`,
      },
      { daysMax: graceDaysMax },
    ).prefault('24h'),
    organization: ofKey,
  }),
  secret: 'api_key',
  changes: { of: 'access', asks: 'always' },
  plan: async (context, { key: keyId, grace, organization: organizationId }) => {
    const state = await keyToChange(context.foundation, { keyId, organizationId }, 'rotate')
    if (organizationId !== undefined) await checkPartnerKeys(context, organizationId, 'rotate')
    const end = new Date(Date.now() + grace).toISOString()
    return {
      says: [`Issue a successor of ${keyText(keyId, state)}. The old key works until ${end}.`],
      json: { api_key_id: keyId, grace_until: end },
    }
  },
  run: async (context, { key: keyId, grace: graceMs, organization: organizationId }) => {
    const { actor } = context.operator
    if (organizationId !== undefined) await checkPartnerKeys(context, organizationId, 'rotate')
    const rotated = await rotate(context.foundation, { keyId, organizationId, graceMs, actor })
    return {
      json: {
        organization_id: rotated.issued.organization_id,
        api_key_id: rotated.keyId,
        api_key: rotated.apiKey,
        replaces: keyId,
        grace_until: rotated.graceUntil,
      },
    }
  },
})

const revokeKey = command({
  name: 'key revoke',
  action: 'keys.change',
  summary: 'revoke an API key; every process refuses it within a second',
  input: z.object({
    key: apiKey(),
    reason: reason().prefault('no reason given'),
    organization: ofKey,
  }),
  changes: { of: 'access', asks: 'always' },
  plan: async ({ foundation }, { key: keyId, organization: organizationId }) => {
    const state = await keyToChange(foundation, { keyId, organizationId }, 'revoke')
    return {
      says: [
        `Revoke ${keyText(keyId, state)}: it stops working in every process, usually within a second. This cannot be undone.`,
      ],
      json: { api_key_id: keyId, organization_id: state?.organizationId ?? null },
    }
  },
  run: async ({ foundation, operator }, { key: keyId, reason, organization: organizationId }) => {
    await revoke(foundation, { keyId, organizationId, reason, actor: operator.actor })
    return { json: { api_key_id: keyId, revoked: true } }
  },
})

const leakedInput = z.object({
  key: apiKey(),
  ...callFields,
  reference: reference(),
  reason: reason().prefault('the key leaked'),
  organization: ofKey,
})

const replaceLeakedKey = command({
  name: 'key replace-leaked',
  action: 'keys.replace',
  summary:
    'replace a leaked API key; the key is revoked, its successor is shown once, and calls made with the leaked key are refunded',
  input: leakedInput,
  secret: 'api_key',
  changes: { of: 'access', asks: 'always' },
  plan: async ({ foundation, progress }, input) => {
    const { key: keyId, organization: organizationId } = input
    const [reference, choice] = [commonReferenceOf(input.reference), choiceOf(input)]
    const key = await certainKey(foundation, { keyId, organizationId })
    const would = await planRefunds(
      foundation,
      await chooseCalls(foundation, { ...key, choice }, progress),
      reference,
    )
    const successor = await successorToCome(foundation, key)
    return {
      says: [
        key.revokedAt === null
          ? `Revoke ${keyText(keyId, key)}: it stops working in every process, usually within a second. This cannot be undone.`
          : `The key ${keyId} was revoked at ${key.revokedAt}.`,
        successor.says,
        ...(choice === null ? ['No calls were chosen: nothing is refunded.'] : refundsSaid(would)),
      ],
      json: {
        organization_id: key.organizationId,
        replaces: keyId,
        api_key_id: key.successorId,
        reference,
        refunds: refundsJson(would),
      },
      ...(key.revokedAt !== null &&
        successor.done &&
        would.refunds === 0 &&
        ({ asks: 'never', nothing: true } as const)),
    }
  },
  run: async (context, input) => {
    const { foundation, operator } = context
    const { key: keyId, organization: organizationId, reason } = input
    const [asked, choice] = [{ ...input, reference: commonReferenceOf(input.reference) }, choiceOf(input)]
    const replaced = { keyId, organizationId, reason, actor: operator.actor }
    const { leaked: key, successor } = await replaceLeaked(foundation, replaced)
    // Only this answer contains the secret, so a failure of the refunds is reported in the answer and not as an error.
    const refunds = choice === null ? null : await refundsOf(context, { ...key, choice }, asked)
    return {
      json: {
        organization_id: key.organizationId,
        api_key_id: successor?.keyId ?? null,
        api_key: successor?.apiKey ?? null,
        replaces: keyId,
        name: key.name,
        permissions: key.permissions,
        rate_limits: key.limits,
        allowed_cidrs: key.allowedCidrs,
        expires_at: key.expiresAt,
        reference: input.reference,
        refunds: refunds?.json ?? null,
      },
      ...(refunds?.failed === true && { failed: true }),
      ...(refunds?.jobId != null && {
        next: [{ name: 'jobs show', label: 'See the refunds', given: { id: refunds.jobId } }],
      }),
    }
  },
})

const successorToCome = async (
  foundation: Context['foundation'],
  key: KeyState,
): Promise<{ readonly says: string; readonly done: boolean }> => {
  if (hasExpired(key))
    return { says: `The key expired at ${key.expiresAt}, so no key replaces it.`, done: true }
  if (key.successorId !== null && (await isIssued(foundation, key.successorId)))
    return { says: `Its successor ${key.successorId} was already issued and does not change.`, done: true }
  return {
    says: 'Issue its successor with the same name, permissions, addresses and limits. It is shown once.',
    done: false,
  }
}

/** If there are more calls than this, a job refunds them, so that the answer with the new key is not delayed. */
const refundsAtOnceMax = 100
/** After this time, every process certainly refuses a revoked key. */
const refusedWithinMs = 60_000

type LeakedRefunds = {
  readonly json: object
  readonly failed: boolean
  readonly jobId: string | null
}

const refundsOf = async (
  { foundation, operator, logger, progress }: Context,
  calls: Parameters<typeof chooseCalls>[1],
  { reference, reason, ...asked }: z.output<typeof leakedInput>,
): Promise<LeakedRefunds> => {
  try {
    const chosen = await chooseCalls(foundation, calls, progress)
    if (chosen.charged.size > refundsAtOnceMax && (await workerRuns(foundation.pool))) {
      const { from, to = new Date(Date.now() + refusedWithinMs).toISOString(), requests } = asked
      const choice = requests === undefined ? { from, to } : { requests }
      const jobId = randomUUID()
      await requestLongWork(
        foundation,
        {
          id: jobId,
          declared: refundCallsOfKey,
          operator,
          given: { key: calls.keyId, ...choice, reason, reference },
        },
        logger,
      )
      return { json: { job_id: jobId, calls: chosen.charged.size }, failed: false, jobId }
    }
    const done = await refundChosen(foundation, chosen, {
      reference,
      reason,
      actor: operator.actor,
      onProgress: progress,
    })
    return { json: refundsJson(done), failed: chosen.unknown.length > 0, jobId: null }
  } catch (error) {
    logger.error({ err: error, key: calls.keyId, reference }, 'the refunds for a leaked key did not finish')
    const message = error instanceof Error ? error.message : String(error)
    const json = { error: message, remedy: 'Run the same command again to refund the rest.' }
    return { json, failed: true, jobId: null }
  }
}

const limitsInput = z.object({
  key: apiKey(),
  requests_per_minute: limit('requests_per_minute').optional(),
  requests_per_day: limit('requests_per_day').optional(),
  email_validations_per_second: limit('email_validations_per_second').optional(),
  organization: ofKey,
})

const limitsOf = (input: z.output<typeof limitsInput>): Partial<KeyLimits> => {
  const given = limitNames.flatMap((name) => {
    const value = input[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  if (given.length === 0)
    throw new InputFault('requests-per-minute', 'give this, requests-per-day or email-validations-per-second')
  return Object.fromEntries(given)
}

const limitKey = command({
  name: 'key limits',
  action: 'keys.change',
  summary: 'change the rate limits of an API key',
  input: limitsInput,
  changes: { of: 'access', asks: 'always' },
  plan: async ({ foundation, operator }, input) => {
    const { key: keyId, organization: organizationId } = input
    const limits = limitsOf(input)
    const state = await keyToChange(foundation, { keyId, organizationId }, 'limits')
    if (operator.role === 'partner') checkPartnerLimits(limits, state?.limits ?? {})
    const before: Readonly<Record<string, number>> = { ...state?.limits }
    const changed = Object.entries(limits).map(([name, to]) => ({ name, from: before[name] ?? 0, to }))
    return {
      says: [
        `Change the limits of ${keyText(keyId, state)}: ${changed.map(({ name, from, to }) => `${name} from ${from} to ${to}`).join(', ')}.`,
      ],
      // A lower limit always needs consent, because it refuses calls that were accepted before.
      asks: changed.some(({ from, to }) => to < from) ? 'always' : 'on a terminal',
      json: { api_key_id: keyId, rate_limits: { ...state?.limits, ...limits } },
    }
  },
  run: async ({ foundation, operator }, input) => {
    const { key: keyId, organization: organizationId } = input
    const asked = { keyId, organizationId, limits: limitsOf(input), actor: operator.actor }
    const byPartner = operator.role === 'partner'
    return {
      json: { api_key_id: keyId, rate_limits: await changeLimits(foundation, { ...asked, byPartner }) },
    }
  },
})

const listAll = pagedList({
  name: 'key list',
  action: 'accounts.read',
  summary: 'list API keys; their secrets are not stored and cannot be shown',
  input: z.object({ organization: organization({ help: 'only this organization' }).optional() }),
  columns: [
    { name: 'api_key_id', label: 'Key', kind: 'id' },
    { name: 'organization_id', label: 'Organization', kind: 'id' },
    { name: 'name', label: 'Name' },
    { name: 'ends_with', label: 'Ends with' },
    { name: 'permissions', label: 'Permissions' },
    { name: 'allowed_cidrs', label: 'Allowed from' },
    { name: 'state', label: 'Status' },
    { name: 'expires_at', label: 'Expires (UTC)', kind: 'instant' },
    { name: 'grace_until', label: 'Works until (UTC)', kind: 'instant' },
    { name: 'revoked_at', label: 'Revoked (UTC)', kind: 'instant' },
  ],
  whole: true,
  page: async (context, { organization: organizationId = null }, { cursor, max }) => {
    const { foundation, caughtUp } = context
    if (cursor !== null && !keyIdForm.safeParse(cursor).success)
      throw new InputFault('cursor', `"${cursor}" is not the id of an API key`)
    if (cursor === null) {
      if (organizationId !== null) await balance(foundation, organizationId)
      await caughtUp()
    }
    const rows = await rowsOf(foundation.pool, keysAfter(organizationId, { after: cursor, max: max + 1 }))
    return pageUpTo(
      rows.map((row) => keyJson(row, Date.now())),
      { max, cursor: 'api_key_id' },
    )
  },
})

const keyJson = (row: ApiKeyRow, nowMs: number) => ({
  api_key_id: row.key_id,
  organization_id: row.organization_id,
  name: row.name,
  ends_with: row.last4,
  permissions: row.permissions,
  rate_limits: row.limits,
  allowed_cidrs: row.allowed_cidrs,
  state: stateOf(row, nowMs),
  created_at: row.created_at,
  expires_at: row.expires_at,
  successor: row.successor_id,
  grace_until: row.grace_until,
  revoked_at: row.revoked_at,
})

const stateOf = ({ revoked_at, expires_at, grace_until }: ApiKeyRow, nowMs: number): string => {
  if (revoked_at !== null) return 'revoked'
  if (expires_at !== null && expires_at.getTime() <= nowMs) return 'expired'
  if (grace_until === null) return 'works'
  return grace_until.getTime() <= nowMs ? 'replaced' : 'being replaced'
}

const keyText = (keyId: string, state: KeyState | null): string =>
  state === null
    ? `key ${keyId}, whose events cannot be read`
    : `key ${keyId} "${state.name}" of ${state.organizationName} (${state.organizationId}), which ends with ${state.last4}`

export const declarations = [issue, rotateKey, revokeKey, replaceLeakedKey, limitKey, listAll]
