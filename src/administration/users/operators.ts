import type { EventLog } from '../../event-log/port.ts'
import { pagesOf } from '../../event-log/read-stream.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEvent } from '../../events/catalogue.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import type { OperatorTokenIssued } from '../../events/operator.ts'
import { operatorStream } from '../../events/streams.ts'
import type { UserRole } from '../../events/users.ts'
import { provedUserOf } from '../operator.ts'
import { mayDo } from '../roles.ts'

/**
 * Users and their tokens according to the event log. Rights depend only on the event log, because a row in the database can be
 * changed or lost.
 */

type Noted = { readonly at: string; readonly by: string }

export type LoggedUser = {
  readonly user: string
  readonly createdAt: string
  readonly role: UserRole
  readonly organizationId: string | null
  readonly createdBy: string
  /** The actors who created or invited the user, or set the user's password. Each of them could act as the user. */
  readonly accessSetBy: ReadonlySet<string>
  readonly disabled: (Noted & { readonly reason: string }) | null
}

/** A user's second factor. `codesUsed` contains the places of used codes in the list of recovery codes. */
export type LoggedFactor = {
  readonly factorId: string
  readonly userCreatedAt: string
  readonly setAt: string
  readonly codesId: string
  readonly codesUsed: ReadonlySet<number>
}

export type LoggedToken = {
  readonly tokenId: string
  readonly issuedAt: string
  readonly issuedBy: string
  readonly revoked: Noted | null
} & Pick<OperatorTokenIssued, 'user' | 'secret_hmac' | 'user_created_at'>

/** An invitation that can still be accepted, unless it has expired. */
export type LoggedInvitation = {
  readonly user: string
  readonly invitationId: string
  readonly role: UserRole
  readonly organizationId: string | null
  readonly secretSha256: string
  readonly invitedAt: string
  readonly invitedBy: string
  readonly expiresAt: string
}

export type OperatorState = {
  /** The number of folded events of the stream, which is its last revision plus one. */
  readonly events: number
  readonly users: ReadonlyMap<string, LoggedUser>
  readonly tokens: ReadonlyMap<string, LoggedToken>
  /** Invitations by the user's name. Each user has at most one invitation. */
  readonly invitations: ReadonlyMap<string, LoggedInvitation>
  /** Second factors by the user's name. */
  readonly factors: ReadonlyMap<string, LoggedFactor>
}

export const noOperators: OperatorState = {
  events: 0,
  users: new Map(),
  tokens: new Map(),
  invitations: new Map(),
  factors: new Map(),
}

const folded = {
  UserCreated: true,
  UserRoleChanged: true,
  UserPasswordChanged: true,
  UserDisabled: true,
  UserEnabled: true,
  UserInvited: true,
  UserInvitationAccepted: true,
  UserInvitationWithdrawn: true,
  SecondFactorSet: true,
  SecondFactorRemoved: true,
  RecoveryCodesRenewed: true,
  RecoveryCodeUsed: true,
  OperatorTokenIssued: true,
  OperatorTokenRevoked: true,
} as const

/**
 * The current state of the stream, updated from the previous state. Throws if an event about users or tokens cannot be opened, because
 * that event may revoke something, or if the log is unavailable.
 */
export const operatorsSince = async (
  eventLog: Pick<EventLog, 'read'>,
  before: OperatorState,
): Promise<OperatorState> => {
  let events = before.events
  // Every request of a signed-in user asks for the state, so the maps are copied only if an event changes them.
  let changed: ReturnType<typeof copyOf> | null = null
  for await (const page of pagesOf(eventLog, operatorStream, { from: events })) {
    for (const recorded of page) {
      // Other events are not decoded, because they are not needed and this release may not know their types.
      if (!Object.hasOwn(folded, recorded.type)) continue
      const { metadata, ...event } = decodeEvent(recorded)
      changed ??= copyOf(before)
      const { users, tokens, invitations, factors } = changed
      foldUser(users, event, { ...metadata, actor: inviterOr(metadata.actor, invitations, event) })
      foldInvitation(invitations, event, metadata)
      foldToken(tokens, event, metadata)
      foldFactor(factors, event, metadata)
    }
    events += page.length
  }
  return { ...(changed ?? before), events }
}

const copyOf = ({ users, tokens, invitations, factors }: OperatorState) => ({
  users: new Map(users),
  tokens: new Map(tokens),
  invitations: new Map(invitations),
  factors: new Map(factors),
})

const foldUser = (
  users: Map<string, LoggedUser>,
  event: DomainEvent,
  { actor: by, effective_at: at }: EventMetadata,
): void => {
  switch (event.type) {
    case 'UserCreated':
    case 'UserRoleChanged':
    case 'UserDisabled':
    case 'UserEnabled': {
      const { user, user_created_at: createdAt, role, organization_id: organizationId } = event.data
      const known = users.get(user)
      const before = known?.createdAt === createdAt ? known : undefined
      // The event is about an earlier user with this name, who no longer exists.
      if (known !== undefined && before === undefined && event.type !== 'UserCreated') return
      let disabled = before?.disabled ?? null
      if (event.type === 'UserDisabled') disabled = { at, by, reason: event.data.reason }
      else if (event.type !== 'UserRoleChanged') disabled = null
      // A user without a `UserCreated` event is added by the first change.
      users.set(user, {
        user,
        createdAt,
        role,
        organizationId,
        disabled,
        createdBy: before?.createdBy ?? by,
        accessSetBy: before?.accessSetBy ?? new Set([by]),
      })
      return
    }
    case 'UserPasswordChanged': {
      const known = users.get(event.data.user)
      if (known?.createdAt !== event.data.user_created_at || provedUserOf(by) === known.user) return
      users.set(known.user, { ...known, accessSetBy: new Set([...known.accessSetBy, by]) })
      return
    }
    default:
  }
}

/** Whether an actor could act as a user, because the actor set up the user's access or has seen a valid token of the user. */
export const couldActAs = ({ users, tokens }: OperatorState, actor: string, user: string): boolean =>
  users.get(user)?.accessSetBy.has(actor) === true ||
  [...tokens.values()].some((one) => one.user === user && one.issuedBy === actor && one.revoked === null)

/** The inviter counts as the creator of the user. Earlier events name the person who accepted the invitation. */
const inviterOr = (
  actor: string,
  invitations: ReadonlyMap<string, LoggedInvitation>,
  event: DomainEvent,
): string =>
  event.type === 'UserCreated' && provedUserOf(actor) === event.data.user
    ? (invitations.get(event.data.user)?.invitedBy ?? actor)
    : actor

const foldInvitation = (
  invitations: Map<string, LoggedInvitation>,
  event: DomainEvent,
  { actor: invitedBy, effective_at: invitedAt }: EventMetadata,
): void => {
  switch (event.type) {
    case 'UserInvited': {
      const { user, invitation_id: invitationId, role, organization_id: organizationId } = event.data
      const { secret_sha256: secretSha256, expires_at: expiresAt } = event.data
      invitations.set(user, {
        user,
        invitationId,
        role,
        organizationId,
        secretSha256,
        expiresAt,
        invitedAt,
        invitedBy,
      })
      return
    }
    case 'UserInvitationWithdrawn':
      if (invitations.get(event.data.user)?.invitationId === event.data.invitation_id)
        invitations.delete(event.data.user)
      return
    // The name is now taken, by the invited person or by a command, so the invitation ends.
    case 'UserCreated':
      invitations.delete(event.data.user)
      return
    case 'UserDisabled':
    case 'UserRoleChanged':
      // If a user loses the right to invite, that user's open invitations become invalid permanently.
      if (event.type === 'UserRoleChanged' && mayDo(event.data.role, 'users.change')) return
      for (const one of invitations.values())
        if (provedUserOf(one.invitedBy) === event.data.user) invitations.delete(one.user)
      return
    default:
  }
}

const foldFactor = (
  factors: Map<string, LoggedFactor>,
  event: DomainEvent,
  { effective_at: setAt }: EventMetadata,
): void => {
  switch (event.type) {
    case 'UserCreated':
      // The new user may have the name of an earlier user, whose second factor does not count.
      factors.delete(event.data.user)
      return
    case 'SecondFactorSet': {
      const { user, user_created_at: userCreatedAt, factor_id: factorId, codes_id: codesId } = event.data
      factors.set(user, { factorId, userCreatedAt, setAt, codesId, codesUsed: new Set() })
      return
    }
    case 'SecondFactorRemoved':
    case 'RecoveryCodesRenewed':
    case 'RecoveryCodeUsed': {
      const known = factors.get(event.data.user)
      if (known === undefined || known.factorId !== event.data.factor_id) return
      if (event.type === 'SecondFactorRemoved') factors.delete(event.data.user)
      else if (event.type === 'RecoveryCodesRenewed')
        factors.set(event.data.user, { ...known, codesId: event.data.codes_id, codesUsed: new Set() })
      else if (event.data.codes_id === known.codesId)
        factors.set(event.data.user, {
          ...known,
          codesUsed: known.codesUsed.union(new Set([event.data.code])),
        })
      return
    }
    default:
  }
}

const foldToken = (
  tokens: Map<string, LoggedToken>,
  event: DomainEvent,
  { actor: by, effective_at: at }: EventMetadata,
): void => {
  const revoke = (token: LoggedToken): void => {
    if (token.revoked === null) tokens.set(token.tokenId, { ...token, revoked: { at, by } })
  }
  if (event.type === 'OperatorTokenIssued' && !tokens.has(event.data.token_id)) {
    const { token_id: tokenId, ...rest } = event.data
    tokens.set(tokenId, { tokenId, ...rest, issuedAt: at, issuedBy: by, revoked: null })
  } else if (event.type === 'OperatorTokenRevoked') {
    const token = tokens.get(event.data.token_id)
    if (token !== undefined) revoke(token)
  } else if (event.type === 'UserDisabled') {
    // The revocation is permanent: a user who is enabled again needs a new token.
    for (const token of tokens.values()) if (token.user === event.data.user) revoke(token)
  }
}
