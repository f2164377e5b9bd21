import { randomBytes } from 'node:crypto'
import type pg from 'pg'
import { ConfigError } from '../config.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { type EventLog, StreamMissing } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf } from '../events/catalogue.ts'
import type { OperatorTokenIssued } from '../events/operator.ts'
import { operatorStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { sameHmac } from '../guard/secrets.ts'
import { composeOperatorToken, parseOperatorToken } from '../keys/operator-token.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { InputFault } from './input.ts'

/**
 * People's tokens for the command line. The event log alone says which there are, whose they are and which are revoked: a
 * row can be changed, and a row that is lost would make a revoked token work again.
 */

type Parts = Pick<Foundation, 'pool' | 'eventLog' | 'secrets'>

type OperatorToken = {
  readonly tokenId: string
  readonly user: string
  readonly issuedAt: string
  readonly issuedBy: string
  readonly revoked: { readonly at: string; readonly by: string } | null
}
type KnownToken = OperatorToken & Pick<OperatorTokenIssued, 'secret_hmac' | 'user_created_at'>

/** A person needs one for each machine; more than these are forgotten ones. */
const liveTokensMax = 20
const pageMax = 1_000

/** What the user may do with the token is what the user may do. Throws `InputFault` for a user that does not exist. */
export const issueOperatorToken = async (
  { pool, eventLog, secrets }: Parts,
  { user, actor }: { user: string; actor: string },
): Promise<{ tokenId: string; token: string }> => {
  const user_created_at = await userCreatedAt(pool, user)
  if (user_created_at === null)
    throw new InputFault('name', `there is no user "${user}"; "user create" makes one`)
  const live = (await knownTokens(eventLog)).filter((one) => one.user === user && one.revoked === null)
  if (live.length >= liveTokensMax)
    throw new CommandRefused(`${user} has ${live.length} tokens; revoke those that are not used any more`)
  const { token, tokenId, secret } = composeOperatorToken(randomBytes(256))
  await append(
    eventLog,
    {
      type: 'OperatorTokenIssued',
      data: { token_id: tokenId, user, user_created_at, secret_hmac: secrets.operatorTokenHmac(secret) },
    },
    { once: `token/${tokenId}`, actor },
  )
  return { tokenId, token }
}

/** Every token there ever was, oldest first. */
export const operatorTokens = async ({ eventLog }: Pick<Parts, 'eventLog'>): Promise<OperatorToken[]> =>
  (await knownTokens(eventLog)).map(({ secret_hmac: _, user_created_at: __, ...token }) => token)

/** Revokes one token of a user, or all. They are refused from then on. Throws `CommandRefused` where there is none. */
export const revokeOperatorTokens = async (
  { eventLog }: Pick<Parts, 'eventLog'>,
  { user, tokenId, actor }: { user: string; tokenId: string | undefined; actor: string },
): Promise<string[]> => {
  const revoked = (await knownTokens(eventLog)).filter(
    (one) => one.user === user && one.revoked === null && (tokenId === undefined || one.tokenId === tokenId),
  )
  if (revoked.length === 0)
    throw new CommandRefused(
      `${user} has no token${tokenId === undefined ? '' : ` ${tokenId}`} that works; see "user tokens"`,
    )
  for (const { tokenId: token_id } of revoked)
    await append(
      eventLog,
      { type: 'OperatorTokenRevoked', data: { token_id, user } },
      { once: `token/${token_id}/revoke`, actor },
    )
  return revoked.map((one) => one.tokenId)
}

/** Whether a text can be a token at all, by its form and checksum. Throws `ConfigError`. */
export const checkTokenForm = (text: string): void => {
  if (parseOperatorToken(text) === null)
    throw new ConfigError('OPERATOR_TOKEN: not a token as "user token" shows it; it may be cut off')
}

/** Whose token it is, by the event log. Throws `ConfigError` for one that does not work. */
export const userOfToken = async ({ pool, eventLog, secrets }: Parts, text: string): Promise<string> => {
  checkTokenForm(text)
  const parsed = parseOperatorToken(text)
  const known = (await knownTokens(eventLog)).find(({ tokenId }) => tokenId === parsed?.tokenId)
  // Of a token whose secret is wrong nothing is told, not even whose it would be.
  if (
    parsed === null ||
    known === undefined ||
    !sameHmac(secrets.operatorTokenHmac(parsed.secret), known.secret_hmac)
  )
    throw new ConfigError('OPERATOR_TOKEN: no token of this installation; "user token" makes one')
  if (known.revoked !== null)
    throw new ConfigError(
      `OPERATOR_TOKEN: token ${known.tokenId} of ${known.user} was revoked at ${known.revoked.at} by ${known.revoked.by}`,
    )
  if ((await userCreatedAt(pool, known.user)) !== known.user_created_at)
    throw new ConfigError(
      `OPERATOR_TOKEN: the user ${known.user} it was made for does not exist any more; "user token" makes a new one`,
    )
  return known.user
}

type TokenEvent = DomainEventOf<'OperatorTokenIssued' | 'OperatorTokenRevoked'>

const append = (
  eventLog: EventLog,
  event: TokenEvent,
  { once, actor }: { once: string; actor: string },
): Promise<unknown> =>
  appendNext(eventLog, operatorStream, [
    encodeEvent(event, {
      id: eventIdOf(operatorStream, once, 0),
      actor,
      effectiveAt: new Date().toISOString(),
    }),
  ])

/** Null: there is no such user. Tells a user from a later one of the same name. */
const userCreatedAt = async (pool: pg.Pool, name: string): Promise<string | null> => {
  const { rows } = await pool.query<{ created_at: Date }>('select created_at from users where name = $1', [
    name,
  ])
  return rows[0]?.created_at.toISOString() ?? null
}

/** Throws where an event cannot be opened: it may revoke a token. */
const knownTokens = async (eventLog: Pick<EventLog, 'read'>): Promise<KnownToken[]> => {
  const tokens = new Map<string, KnownToken>()
  for (let from = 0; ; from += pageMax) {
    const page = await eventLog.read(operatorStream, { from, max: pageMax }).catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
    for (const recorded of page) {
      // What else operators do is none of this, and may be of a newer release.
      if (recorded.type !== 'OperatorTokenIssued' && recorded.type !== 'OperatorTokenRevoked') continue
      const { metadata, ...event } = decodeEvent(recorded)
      if (event.type === 'OperatorTokenIssued' && !tokens.has(event.data.token_id)) {
        const { token_id: tokenId, ...rest } = event.data
        tokens.set(tokenId, {
          tokenId,
          ...rest,
          issuedAt: metadata.effective_at,
          issuedBy: metadata.actor,
          revoked: null,
        })
      } else if (event.type === 'OperatorTokenRevoked') {
        const token = tokens.get(event.data.token_id)
        if (token !== undefined && token.revoked === null)
          tokens.set(token.tokenId, {
            ...token,
            revoked: { at: metadata.effective_at, by: metadata.actor },
          })
      }
    }
    if (page.length < pageMax) return [...tokens.values()]
  }
}
