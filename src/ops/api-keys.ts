import { randomBytes } from 'node:crypto'
import { ulid } from 'ulid'
import { appendSurely } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { type EventLog, type ExpectedRevision, StreamMissing } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import type { Permission } from '../events/capabilities.ts'
import type { DomainEvent } from '../events/catalogue.ts'
import type { ApiKeyIssued, KeyLimits } from '../events/keys.ts'
import { keyStream } from '../events/streams.ts'
import { composeApiKey } from '../keys/api-key.ts'
import {
  evolveKey,
  isKeyEvent,
  type KeyEvent,
  type KeyRefusal,
  type KeyState,
  revokeKey,
  rotateKey,
} from '../keys/key-state.ts'
import { CommandRefused } from '../ledger/commit.ts'
import type { Foundation } from './foundation.ts'
import { balance } from './organizations.ts'

/** What operators do with API keys. Every one of these is an event in the key's stream. */

export const defaultKeyLimits: KeyLimits = {
  requests_per_minute: 6_000,
  requests_per_day: 1_000_000,
  email_validations_per_second: 10,
}

const streamEventsMax = 1_000

export type IssueRequest = {
  readonly organizationId: string
  readonly name: string
  readonly permissions: readonly Permission[]
  readonly limits: KeyLimits
  readonly allowedCidrs: readonly string[]
  readonly expiresAt: string | null
  readonly actor: string
}

/** The only moment the whole key exists outside its holder's hands. */
export type IssuedKey = { readonly keyId: string; readonly apiKey: string; readonly issued: ApiKeyIssued }

/** Issues a key of a registered organization. The secret is returned here and stored nowhere. */
export const issueKey = async (foundation: Foundation, request: IssueRequest): Promise<IssuedKey> => {
  const { name } = await balance(foundation, request.organizationId)
  return issue(foundation, request, name)
}

const issue = async (
  { eventLog, secrets }: Foundation,
  request: IssueRequest,
  organizationName: string,
): Promise<IssuedKey> => {
  const { apiKey, keyId, secret } = composeApiKey(randomBytes(256))
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
  await append(eventLog, keyId, 'none', { type: 'ApiKeyIssued', data: issued }, request.actor)
  return { keyId, apiKey, issued }
}

/** Issues a successor with the same rights; the old key works on for the grace period. */
export const rotate = async (
  foundation: Foundation,
  { keyId, graceMs, actor }: { keyId: string; graceMs: number; actor: string },
): Promise<IssuedKey & { graceUntil: string }> => {
  const { state, revision } = await loadKey(foundation.eventLog, keyId)
  const at = new Date().toISOString()
  const graceUntil = new Date(Date.now() + graceMs).toISOString()
  // Asked before the successor is issued, and again with its id.
  allowed(rotateKey(state, { successorId: keyId, graceUntil, at }))
  const successor = await issue(
    foundation,
    {
      organizationId: state.organizationId,
      name: state.name,
      permissions: state.permissions,
      limits: state.limits,
      allowedCidrs: state.allowedCidrs,
      expiresAt: state.expiresAt,
      actor,
    },
    state.organizationName,
  )
  await append(
    foundation.eventLog,
    keyId,
    revision,
    allowed(rotateKey(state, { successorId: successor.keyId, graceUntil, at })),
    actor,
  )
  return { ...successor, graceUntil }
}

export const revoke = async (
  { eventLog }: Foundation,
  { keyId, reason, actor }: { keyId: string; reason: string; actor: string },
): Promise<void> => {
  const { state, revision } = await loadKey(eventLog, keyId)
  await append(eventLog, keyId, revision, allowed(revokeKey(state, reason)), actor)
}

export const changeLimits = async (
  { eventLog }: Foundation,
  { keyId, limits, actor }: { keyId: string; limits: Partial<KeyLimits>; actor: string },
): Promise<KeyLimits> => {
  const { state, revision } = await loadKey(eventLog, keyId)
  const changed = { ...state.limits, ...limits }
  await append(
    eventLog,
    keyId,
    revision,
    { type: 'ApiKeyLimitsChanged', data: { key_id: keyId, limits: changed } },
    actor,
  )
  return changed
}

const allowed = (decision: KeyEvent | KeyRefusal): KeyEvent => {
  if ('refused' in decision) throw new CommandRefused(decision.refused)
  return decision
}

const loadKey = async (eventLog: EventLog, keyId: string): Promise<{ state: KeyState; revision: number }> => {
  let state: KeyState | undefined
  let revision = -1
  try {
    for (const recorded of await eventLog.read(keyStream(keyId), { max: streamEventsMax })) {
      const event = decodeEvent(recorded)
      if (isKeyEvent(event)) state = evolveKey(state, event, event.metadata.effective_at)
      revision = recorded.revision
    }
  } catch (error) {
    if (!(error instanceof StreamMissing || error instanceof TypeError)) throw error
  }
  if (state === undefined) throw new CommandRefused(`there is no API key ${keyId}; see "key list"`)
  return { state, revision }
}

const append = async (
  eventLog: EventLog,
  keyId: string,
  expected: ExpectedRevision,
  event: DomainEvent,
  actor: string,
): Promise<void> => {
  const id = eventIdOf(keyId, ulid(), 0)
  await appendSurely(eventLog, keyStream(keyId), expected, [
    encodeEvent(event, { id, actor, effectiveAt: new Date().toISOString() }),
  ])
}
