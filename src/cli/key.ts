import type { ApiKeyRow } from '../../projections/api-keys.ts'
import { balance } from '../administration/credits/credits.ts'
import { labelOf, listOf } from '../administration/input.ts'
import {
  changeLimits,
  defaultKeyLimits,
  issueKey,
  keyToChange,
  listKeys,
  revoke,
  rotate,
} from '../administration/keys/api-keys.ts'
import {
  allowedCidrsOf,
  expiryOf,
  graceMsOf,
  limitFields,
  limitsOf,
  permissionsByDefault,
  permissionsOf,
} from '../administration/keys/key-request.ts'
import { openTestOrganization } from '../administration/keys/test-keys.ts'
import { type Permission, permission } from '../events/capabilities.ts'
import type { KeyState } from '../keys/key-state.ts'
import {
  type Command,
  type Given,
  organizationParameter,
  type Parameter,
  UsageError,
  wholeOrNot,
} from './command.ts'
import { cut, nameCharsMax, table } from './table.ts'

const keyParameter: Parameter = {
  name: 'key',
  help: 'the whole key, or its id: the 16 characters after enl_live_ or enl_test_',
  required: true,
  kind: 'key',
}
const limitParameters: readonly Parameter[] = limitFields.map(({ field, limit, what }) => ({
  name: field,
  help: `${what} (default ${defaultKeyLimits[limit]})`,
}))

export const keyCommands: readonly Command[] = [
  {
    name: 'key issue',
    summary: 'issue an API key; the key is shown once, here',
    parameters: [
      organizationParameter,
      { name: 'name', help: 'what the key is for (default "default")' },
      {
        name: 'permissions',
        help: `comma-separated, of ${permission.options.join(', ')} (default all but ledger_read)`,
      },
      ...limitParameters,
      {
        name: 'allow',
        help: 'comma-separated addresses or CIDR blocks the key may be used from (default any)',
      },
      {
        name: 'expires-at',
        help: 'ISO 8601 instant; a date alone: the last millisecond of that day, UTC (default never)',
      },
      {
        name: 'test',
        kind: 'flag',
        help: 'a test key: free, answered from made-up data, in a ledger of its own',
      },
    ],
    changes: {
      of: 'access',
      asks: 'never',
      left: 'A key may be issued whose secret no one has seen; "key list" shows it, and "key revoke" ends it.',
      plan: async ({ foundation }, given) => {
        const { organizationId, permissions, allowedCidrs, expiresAt } = issueOf(given)
        const { name } = await balance(await foundation(), organizationId)
        return {
          says: [
            `Issue ${name} (${organizationId}) a ${given.flag('test') ? 'test key' : 'key'} for ${permissions.join(', ')}, from ${allowedCidrs.length === 0 ? 'anywhere' : allowedCidrs.join(', ')}, ${expiresAt === null ? 'for ever' : `until ${expiresAt}`}.`,
          ],
        }
      },
    },
    run: async ({ foundation }, given) => {
      const request = issueOf(given)
      const open = await foundation()
      const organizationId = given.flag('test')
        ? await openTestOrganization(open, { ...request, ...open.operator })
        : request.organizationId
      const { keyId, apiKey } = await issueKey(open, { ...request, organizationId, ...open.operator })
      return {
        json: {
          organization_id: organizationId,
          api_key_id: keyId,
          api_key: apiKey,
          permissions: request.permissions,
          rate_limits: request.limits,
          allowed_cidrs: request.allowedCidrs,
          expires_at: request.expiresAt,
        },
      }
    },
  },
  {
    name: 'key rotate',
    summary: 'issue a successor; the old key works on for a grace period',
    parameters: [
      keyParameter,
      {
        name: 'grace',
        help: 'such as 15m, 24h or 7d; 0s ends the old key now, 90d is the longest (default 24h)',
      },
    ],
    changes: {
      of: 'access',
      asks: 'always',
      left: 'A successor may be issued whose secret no one has seen; "key list" shows what there is, and "key revoke" ends it.',
      plan: async ({ foundation }, given) => {
        const keyId = given.required('key')
        const graceMs = graceMsOf(given.text('grace') ?? '24h')
        const state = await keyToChange(await foundation(), keyId, 'rotate')
        const end = new Date(Date.now() + graceMs).toISOString()
        return {
          says: [`Issue a successor of ${keyText(keyId, state)}, which works until ${end} and no longer.`],
          json: { api_key_id: keyId, grace_until: end },
        }
      },
    },
    run: async ({ foundation }, given) => {
      const keyId = given.required('key')
      const graceMs = graceMsOf(given.text('grace') ?? '24h')
      const open = await foundation()
      const rotated = await rotate(open, { keyId, graceMs, ...open.operator })
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
  },
  {
    name: 'key revoke',
    summary: 'end a key; every process refuses it within a second',
    parameters: [
      keyParameter,
      { name: 'reason', help: 'kept in the event log (default "revoked by operator")' },
    ],
    changes: {
      of: 'access',
      asks: 'always',
      left: wholeOrNot('key list'),
      plan: async ({ foundation }, given) => {
        const keyId = given.required('key')
        labelOf('reason', given.text('reason') ?? 'revoked by operator')
        const state = await keyToChange(await foundation(), keyId, 'revoke')
        return {
          says: [`End ${keyText(keyId, state)}: every process refuses it within a second, for good.`],
          json: { api_key_id: keyId, organization_id: state?.organizationId ?? null },
        }
      },
    },
    run: async ({ foundation }, given) => {
      const keyId = given.required('key')
      const reason = labelOf('reason', given.text('reason') ?? 'revoked by operator')
      const open = await foundation()
      await revoke(open, { keyId, reason, ...open.operator })
      return { json: { api_key_id: keyId, revoked: true } }
    },
  },
  {
    name: 'key limits',
    summary: "change a key's rate limits",
    parameters: [keyParameter, ...limitParameters],
    changes: {
      of: 'access',
      asks: 'always',
      left: wholeOrNot('key list'),
      plan: async ({ foundation }, given) => {
        const keyId = given.required('key')
        const limits = limitsGiven(given)
        const state = await keyToChange(await foundation(), keyId, 'limits')
        const before: Readonly<Record<string, number>> = { ...state?.limits }
        const changed = Object.entries(limits).map(([name, to]) => ({ name, from: before[name] ?? 0, to }))
        return {
          says: [
            `Change the limits of ${keyText(keyId, state)}: ${changed.map(({ name, from, to }) => `${name} from ${from} to ${to}`).join(', ')}.`,
          ],
          // A lower limit takes access away: it refuses calls that were accepted before.
          asks: changed.some(({ from, to }) => to < from) ? 'always' : 'on a terminal',
          json: { api_key_id: keyId, rate_limits: { ...state?.limits, ...limits } },
        }
      },
    },
    run: async ({ foundation }, given) => {
      const keyId = given.required('key')
      const limits = limitsGiven(given)
      const open = await foundation()
      return {
        json: {
          api_key_id: keyId,
          rate_limits: await changeLimits(open, { keyId, limits, ...open.operator }),
        },
      }
    },
  },
  {
    name: 'key list',
    summary: 'list keys; secrets are not stored and cannot be shown',
    parameters: [{ name: 'org', help: 'of this organization only' }],
    changes: 'nothing',
    run: async ({ foundation, logger }, given) => {
      const rows = await listKeys(await foundation(), given.text('org') ?? null, logger)
      return { json: rows.map(keyJson), lines: table(rows.map((row) => shown(row, Date.now()))) }
    },
  },
]

const keyJson = (row: ApiKeyRow) => ({
  api_key_id: row.key_id,
  organization_id: row.organization_id,
  name: row.name,
  ends_with: row.last4,
  permissions: row.permissions,
  rate_limits: row.limits,
  allowed_cidrs: row.allowed_cidrs,
  created_at: row.created_at.toISOString(),
  expires_at: row.expires_at?.toISOString() ?? null,
  successor: row.successor_id,
  grace_until: row.grace_until?.toISOString() ?? null,
  revoked_at: row.revoked_at?.toISOString() ?? null,
})

const shown = (row: ApiKeyRow, nowMs: number) => ({
  api_key_id: row.key_id,
  organization_id: row.organization_id,
  name: cut(row.name, nameCharsMax),
  ends_with: row.last4,
  permissions: row.permissions.length === permission.options.length ? 'all' : row.permissions.join(', '),
  a_minute: row.limits.requests_per_minute,
  a_day: row.limits.requests_per_day,
  allowed_from: row.allowed_cidrs.length === 0 ? 'anywhere' : row.allowed_cidrs.join(', '),
  expires_at: row.expires_at?.toISOString() ?? null,
  state: stateOf(row, nowMs),
})

const stateOf = (row: ApiKeyRow, nowMs: number): string => {
  if (row.revoked_at !== null) return `revoked ${row.revoked_at.toISOString()}`
  if (row.expires_at !== null && row.expires_at.getTime() <= nowMs) return 'expired'
  if (row.grace_until === null) return 'works'
  const until = `${row.grace_until.toISOString()} (${row.successor_id})`
  return row.grace_until.getTime() <= nowMs ? `replaced ${until}` : `works until ${until}`
}

const issueOf = (given: Given) => ({
  organizationId: given.required('org'),
  name: labelOf('name', given.text('name') ?? 'default'),
  permissions: permissionsGiven(given.text('permissions')),
  limits: { ...defaultKeyLimits, ...limitsOf(given.text) },
  allowedCidrs: allowedCidrsOf(given.text('allow')),
  expiresAt: expiryOf(given.text('expires-at')),
})

const limitsGiven = (given: Given) => {
  const limits = limitsOf(given.text)
  if (Object.keys(limits).length === 0)
    throw new UsageError('give --requests-per-minute, --requests-per-day or --email-validations-per-second')
  return limits
}

/** A key for people: its organization, and the parts of it that they have seen. */
const keyText = (keyId: string, state: KeyState | null): string =>
  state === null
    ? `key ${keyId}, of which the event log does not tell what it is`
    : `key ${keyId} "${cut(state.name, nameCharsMax)}" of ${cut(state.organizationName, nameCharsMax)} (${state.organizationId}), which ends with ${state.last4}`

const permissionsGiven = (text: string | undefined): Permission[] =>
  text === undefined ? permissionsByDefault : permissionsOf(listOf(text))
