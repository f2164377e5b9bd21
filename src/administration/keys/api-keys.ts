import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { ulid } from 'ulid'
import { parseCredits } from '../../billing/money.ts'
import { appendChained } from '../../event-log/append-chained.ts'
import { AppendConflict, type EventLog, type ExpectedRevision } from '../../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { Permission } from '../../events/capabilities.ts'
import type { DomainEvent } from '../../events/catalogue.ts'
import type { ApiKeyIssued, KeyLimits } from '../../events/keys.ts'
import { keyId as keyIdSchema } from '../../events/primitives.ts'
import { keyStream } from '../../events/streams.ts'
import { isTestOrganization, testOrganizationOf } from '../../events/test-organization.ts'
import { labelMax } from '../../events/text.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { readKeyStream } from '../../guard/key-stream-reader.ts'
import { composeApiKey } from '../../keys/api-key.ts'
import {
  type KeyEvent,
  type KeyRefusal,
  type KeyState,
  replaceRevokedKey,
  revokeKey,
  rotateKey,
} from '../../keys/key-state.ts'
import { emptyKeyStream, isInDoubt, type KeyStream } from '../../keys/key-stream.ts'
import { composeTestKey } from '../../keys/test-key.ts'
import { availableOf } from '../../ledger/account.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { balance, grant } from '../credits/credits.ts'
import { InputFault } from '../input.ts'
import { limitNames } from './key-request.ts'

/** Changes to API keys by operators. Every change is an event in the key's stream. */

export const defaultKeyLimits: KeyLimits = {
  requests_per_minute: 6_000,
  requests_per_day: 1_000_000,
  email_validations_per_second: 10,
}

/**
 * A partner can give its own keys at most the default limits, or the current limits if an operator has raised them. Throws
 * `InputFault` for the first limit that is too high.
 */
export const checkPartnerLimits = (asked: Partial<KeyLimits>, present: Partial<KeyLimits>): void => {
  for (const limit of limitNames) {
    const most = Math.max(defaultKeyLimits[limit], present[limit] ?? 0)
    if ((asked[limit] ?? 0) > most)
      throw new InputFault(
        limit.replaceAll('_', '-'),
        `at most ${most}; ask the operator of the service for a higher limit`,
      )
  }
}

type IssueRequest = {
  readonly organizationId: string
  readonly name: string
  readonly permissions: readonly Permission[]
  readonly limits: KeyLimits
  readonly allowedCidrs: readonly string[]
  readonly expiresAt: string | null
  readonly actor: string
}

/** `apiKey` is the whole key, which is stored nowhere. */
type IssuedKey = { readonly keyId: string; readonly apiKey: string; readonly issued: ApiKeyIssued }

/** Issues a key for a registered organization. The secret is returned here and stored nowhere. */
export const issueKey = async (foundation: Foundation, request: IssueRequest): Promise<IssuedKey> => {
  const { name } = await balance(foundation, request.organizationId)
  return issue(foundation, request, name)
}

const composeFor = (organizationId: string) =>
  isTestOrganization(organizationId) ? composeTestKey : composeApiKey

const issue = async (
  { eventLog, secrets }: Foundation,
  request: IssueRequest & { readonly keyId?: string },
  organizationName: string,
): Promise<IssuedKey> => {
  const { apiKey, keyId, secret } = composeFor(request.organizationId)(randomBytes(256), request.keyId)
  const issued: ApiKeyIssued = {
    key_id: keyId,
    organization_id: request.organizationId,
    organization_name: organizationName,
    name: request.name,
    secret_hmac: secrets.apiKeyHmac(secret),
    last4: apiKey.slice(-4),
    permissions: [...request.permissions],
    limits: request.limits,
    allowed_cidrs: [...request.allowedCidrs],
    expires_at: request.expiresAt,
  }
  await append(eventLog, keyId, 'none', [{ type: 'ApiKeyIssued', data: issued }], request.actor)
  return { keyId, apiKey, issued }
}

/** If the organization is given, keys of other organizations, and keys whose organization cannot be read, are refused as unknown. */
type KeyNamed = { readonly keyId: string; readonly organizationId?: string | undefined }

/** Issues a successor with the same rights; the old key remains valid for the grace period. */
export const rotate = async (
  foundation: Foundation,
  { graceMs, actor, ...key }: KeyNamed & { readonly graceMs: number; readonly actor: string },
): Promise<IssuedKey & { graceUntil: string }> => {
  const { eventLog } = foundation
  const { keyId } = key
  const state = certainState(keyId, await readKey(eventLog, key))
  const atMs = Date.now()
  const [at, graceUntil] = [new Date(atMs).toISOString(), new Date(atMs + graceMs).toISOString()]
  // The rotation is checked before the successor is issued, and again when it is recorded.
  allowed(rotateKey(state, { successorId: keyId, graceUntil, at }))
  const successor = await issue(foundation, { ...rightsOf(state), actor }, state.organizationName)
  try {
    await change(eventLog, key, actor, (now) => {
      const present = certainState(keyId, now)
      // The successor has the earlier limits, which may just have been lowered.
      if (!isDeepStrictEqual(rightsOf(present), rightsOf(state)))
        throw new CommandRefused(`key ${keyId} was changed at the same moment; rotate it again`)
      return allowed(rotateKey(present, { successorId: successor.keyId, graceUntil, at }))
    })
  } catch (error) {
    // The key was revoked, rotated or changed in between, so the successor is revoked. Its secret was never shown.
    if (error instanceof CommandRefused)
      await revoke(foundation, { keyId: successor.keyId, reason: 'its rotation was refused', actor })
    throw error
  }
  return { ...successor, graceUntil }
}

const rightsOf = ({ organizationId, name, permissions, limits, allowedCidrs, expiresAt }: KeyState) => ({
  organizationId,
  name,
  permissions,
  limits,
  allowedCidrs,
  expiresAt,
})

/** `apiKey` is null if the successor had already been issued. */
type Successor = { readonly keyId: string; readonly apiKey: string | null }

/**
 * Revokes a leaked key, and then issues a successor with the same rights; returns null if the key has expired. Can be called again
 * after an interruption, because the key's stream names only one successor, and a key can be issued only once.
 */
export const replaceLeaked = async (
  foundation: Foundation,
  { reason, actor, ...key }: KeyNamed & { readonly reason: string; readonly actor: string },
): Promise<{ readonly leaked: KeyState; readonly successor: Successor | null }> => {
  const { eventLog } = foundation
  const { keyId } = key
  await certainKey(foundation, key)
  await unlessDone(
    () => revoke(foundation, { ...key, reason, actor }),
    async () => (await readKey(eventLog, key)).revoked,
  )
  const leaked = await certainKey(foundation, key)
  if (hasExpired(leaked)) return { leaked, successor: null }
  const named = async () => (await certainKey(foundation, key)).successorId
  const fresh = composeFor(leaked.organizationId)(randomBytes(256)).keyId
  if (leaked.successorId === null)
    await unlessDone(
      () =>
        change(eventLog, key, actor, (now) => allowed(replaceRevokedKey(certainState(keyId, now), fresh))),
      async () => (await named()) !== null,
    )
  const successorId = await named()
  if (successorId === null) throw new Error(`the stream of key ${keyId} names no successor`)
  const request = { ...rightsOf(leaked), actor, keyId: successorId }
  return { leaked, successor: await issueOnce(foundation, request, leaked.organizationName) }
}

/** Whether a key expired before it was replaced. If the key has a successor, the replacement has begun and can still be completed. */
export const hasExpired = ({ expiresAt, successorId }: KeyState): boolean =>
  successorId === null && expiresAt !== null && Date.parse(expiresAt) <= Date.now()

/** The state of a key. Throws `CommandRefused` if an event of the key cannot be read. */
export const certainKey = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  key: KeyNamed,
): Promise<KeyState> => certainState(key.keyId, await readKey(eventLog, key))

export const isIssued = async ({ eventLog }: Pick<Foundation, 'eventLog'>, keyId: string): Promise<boolean> =>
  (await readKeyStream(eventLog, keyId)).revision !== -1

/** Ignores a refusal if another process has already done the work. */
const unlessDone = async (work: () => Promise<unknown>, isDone: () => Promise<boolean>): Promise<void> => {
  try {
    await work()
  } catch (error) {
    if (!(error instanceof CommandRefused && (await isDone()))) throw error
  }
}

const issueOnce = async (
  foundation: Foundation,
  request: IssueRequest & { readonly keyId: string },
  organizationName: string,
): Promise<Successor> => {
  const { keyId } = request
  try {
    const { apiKey } = await issue(foundation, request, organizationName)
    return { keyId, apiKey }
  } catch (error) {
    if (error instanceof AppendConflict) return { keyId, apiKey: null }
    throw error
  }
}

/** Revokes a key, even if some of its events cannot be read. */
export const revoke = async (
  { eventLog }: Foundation,
  { reason, actor, ...key }: KeyNamed & { readonly reason: string; readonly actor: string },
): Promise<void> => {
  const { keyId } = key
  await change(eventLog, key, actor, (now) => revocationOf(keyId, now, reason))
}

const revocationOf = (keyId: string, { state, revoked }: KeyStream, reason: string): KeyEvent => {
  if (state !== undefined) return allowed(revokeKey(state, reason))
  if (revoked) throw new CommandRefused(`key ${keyId} is already revoked`)
  return { type: 'ApiKeyRevoked', data: { key_id: keyId, reason } }
}

/**
 * The current state of a key that is to be changed; null if the state cannot be read, so that the key can only be revoked. Throws
 * `CommandRefused` if the change would be refused.
 */
export const keyToChange = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  key: KeyNamed,
  kind: 'rotate' | 'revoke' | 'limits',
): Promise<KeyState | null> => {
  const { keyId } = key
  const stream = await readKey(eventLog, key)
  if (kind === 'revoke') {
    revocationOf(keyId, stream, kind)
    return stream.state ?? null
  }
  const state = certainState(keyId, stream)
  const at = new Date().toISOString()
  if (kind === 'rotate') allowed(rotateKey(state, { successorId: keyId, graceUntil: at, at }))
  return state
}

export const changeLimits = async (
  { eventLog }: Foundation,
  {
    limits,
    actor,
    byPartner = false,
    ...key
  }: KeyNamed & {
    readonly limits: Partial<KeyLimits>
    readonly actor: string
    readonly byPartner?: boolean
  },
): Promise<KeyLimits> => {
  const { keyId } = key
  const changed = await change(eventLog, key, actor, (now) => {
    const state = certainState(keyId, now)
    if (byPartner) checkPartnerLimits(limits, state.limits)
    return {
      type: 'ApiKeyLimitsChanged',
      data: { key_id: keyId, limits: { ...state.limits, ...limits } },
    } as const
  })
  return changed.data.limits
}

const allowed = (decision: KeyEvent | KeyRefusal): KeyEvent => {
  if ('refused' in decision) throw new CommandRefused(decision.refused)
  return decision
}

const readKey = async (eventLog: EventLog, { keyId, organizationId }: KeyNamed): Promise<KeyStream> => {
  const stream = keyIdSchema.safeParse(keyId).success ? await readKeyStream(eventLog, keyId) : emptyKeyStream
  const isAnothers = organizationId !== undefined && stream.state?.organizationId !== organizationId
  if (stream.revision === -1 || isAnothers)
    throw new CommandRefused(`there is no API key ${keyId}; see "key list"`)
  return stream
}

/** The state of a key according to its stream. Throws `CommandRefused` if an event of the stream cannot be read. */
const certainState = (keyId: string, stream: KeyStream): KeyState => {
  if (stream.state === undefined || isInDoubt(stream))
    throw new CommandRefused(
      `the state of key ${keyId} is unknown: event ${stream.unreadableAt ?? 0} of its stream cannot be read; revoke the key and issue another one`,
    )
  return stream.state
}

/** The maximum number of attempts for one change. An attempt fails if another process changes the same key at the same moment. */
const changesMax = 8

/** Appends the result of `decide` for the current key, and decides again if another process has appended first. */
const change = async <Event extends KeyEvent>(
  eventLog: EventLog,
  key: KeyNamed,
  actor: string,
  decide: (now: KeyStream) => Event,
): Promise<Event> => {
  for (let attempts = 1; ; attempts++) {
    const now = await readKey(eventLog, key)
    const event = decide(now)
    try {
      await append(eventLog, key.keyId, now.revision, [event], actor)
      return event
    } catch (error) {
      if (!(error instanceof AppendConflict)) throw error
      if (attempts >= changesMax) throw error.actual < now.revision ? lostEnd(key, now) : error
    }
  }
}

/** The log counts more events of the key than it contains, so nothing can be appended after them. */
const lostEnd = ({ keyId }: KeyNamed, { revision }: KeyStream): CommandRefused =>
  new CommandRefused(
    `key ${keyId} cannot be changed: event ${revision} of its stream is missing from the event log. Restore the log from a backup. Until then, a process that is restarted refuses the key`,
  )

const append = async (
  eventLog: EventLog,
  keyId: string,
  expected: ExpectedRevision,
  events: readonly DomainEvent[],
  actor: string,
): Promise<void> => {
  const [once, effectiveAt] = [ulid(), new Date().toISOString()]
  await appendChained(
    eventLog,
    keyStream(keyId),
    expected,
    events.map((event, n) => encodeEvent(event, { id: eventIdOf(keyId, once, n), actor, effectiveAt })),
  )
}

/** A test organization gets this many credits if fewer than `testCreditsMin` are left when a test key is issued. */
const testCredits = parseCredits('1000000')
const testCreditsMin = parseCredits('100000')

const suffix = ' (test)'

/**
 * Opens the test organization of a registered organization, with test credits, unless it exists. All keys of a test organization
 * are test keys. Throws `CommandRefused` if the organization does not exist.
 */
export const openTestOrganization = async (
  foundation: Pick<Foundation, 'ledger'>,
  { organizationId: asked, actor }: { organizationId: string; actor: string },
): Promise<string> => {
  const { ledger } = foundation
  const organizationId = testOrganizationOf(asked)
  if (!(await ledger.account(organizationId)).registered) {
    const { name } = await balance(foundation, asked)
    const request = { name: `${cutTo(name, labelMax - suffix.length)}${suffix}`, overdraftLimit: 0n }
    try {
      const envelope = { key: 'register', atMs: Date.now(), actor }
      await ledger.submit(organizationId, { ...envelope, kind: 'register', ...request })
    } catch (error) {
      // If the test organization exists now, another process registered it at the same moment.
      if (!(error instanceof CommandRefused) || !(await ledger.account(organizationId)).registered)
        throw error
    }
  }
  const available = availableOf(await ledger.account(organizationId), Date.now())
  if (available < testCreditsMin)
    await grant(foundation, {
      organizationId,
      amount: testCredits,
      priority: 100,
      expiresAt: null,
      reason: 'test credits',
      actor,
    })
  return organizationId
}

/** Cuts a string without splitting a character. */
const cutTo = (text: string, charactersMax: number): string =>
  text.length <= charactersMax
    ? text
    : text
        .slice(0, charactersMax)
        .toWellFormed()
        .replace(/\uFFFD$/, '')
