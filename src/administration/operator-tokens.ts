import { randomBytes } from 'node:crypto'
import { ConfigError } from '../config.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { EventLog } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf } from '../events/catalogue.ts'
import { operatorStream } from '../events/streams.ts'
import type { UserRole } from '../events/users.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { composeOperatorToken, parseOperatorToken } from '../keys/operator-token.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { InputFault } from './input.ts'
import { type LoggedToken, noOperators, operatorsSince } from './operators.ts'
import { standingOf, userRow } from './users.ts'

/**
 * People's tokens for the command line. The event log alone says which there are, whose they are and which are revoked: a
 * row can be changed, and a row that is lost would make a revoked token work again.
 */

type Parts = Pick<Foundation, 'pool' | 'eventLog' | 'secrets'>

type OperatorToken = Omit<LoggedToken, 'secret_hmac' | 'secret_key' | 'user_created_at'>

/** A person needs one for each machine; more than these are forgotten ones. */
const liveTokensMax = 20

/** What the user may do with the token is what the user may do. Throws `InputFault` for a user that does not exist. */
export const issueOperatorToken = async (
  { pool, eventLog, secrets }: Parts,
  { user, actor }: { user: string; actor: string },
): Promise<{ tokenId: string; token: string }> => {
  const row = await userRow(pool, user)
  if (row === null) throw new InputFault('name', `there is no user "${user}"; "user create" makes one`)
  const state = await operatorsSince(eventLog, noOperators)
  const standing = standingOf(user, row, state.users.get(user))
  if (standing.kind === 'refused') throw new CommandRefused(standing.says)
  if (standing.role === 'partner')
    throw new CommandRefused(
      `${user} is a partner: partners use the dashboard and their keys, not the command line`,
    )
  const user_created_at = row.created_at.toISOString()
  const live = [...state.tokens.values()].filter((one) => one.user === user && one.revoked === null)
  if (live.length >= liveTokensMax)
    throw new CommandRefused(`${user} has ${live.length} tokens; revoke those that are not used any more`)
  const { token, tokenId, secret } = composeOperatorToken(randomBytes(256))
  const secret_key = secrets.namedKey()
  const own = { token_id: tokenId, user, secret_hmac: secrets.operatorTokenHmac(secret) }
  await append(
    eventLog,
    [
      { type: 'OperatorTokenIssued', data: { ...own, user_created_at } },
      // What says nothing is under the first SECRET_KEY.
      ...(secret_key === null
        ? []
        : [{ type: 'OperatorTokenRehashed', data: { ...own, secret_key } } as const]),
    ],
    { once: `token/${tokenId}`, actor },
  )
  return { tokenId, token }
}

/** Every token there ever was, oldest first. */
export const operatorTokens = async ({ eventLog }: Pick<Parts, 'eventLog'>): Promise<OperatorToken[]> =>
  [...(await operatorsSince(eventLog, noOperators)).tokens.values()].map(
    ({ secret_hmac: _, secret_key: __, user_created_at: ___, ...token }) => token,
  )

/** Revokes one token of a user, or all. They are refused from then on. Throws `CommandRefused` where there is none. */
export const revokeOperatorTokens = async (
  { eventLog }: Pick<Parts, 'eventLog'>,
  { user, tokenId, actor }: { user: string; tokenId: string | undefined; actor: string },
): Promise<string[]> => {
  const { tokens } = await operatorsSince(eventLog, noOperators)
  const revoked = [...tokens.values()].filter(
    (one) => one.user === user && one.revoked === null && (tokenId === undefined || one.tokenId === tokenId),
  )
  if (revoked.length === 0)
    throw new CommandRefused(
      `${user} has no token${tokenId === undefined ? '' : ` ${tokenId}`} that works; see "user tokens"`,
    )
  for (const { tokenId: token_id } of revoked)
    await append(eventLog, [{ type: 'OperatorTokenRevoked', data: { token_id, user } }], {
      once: `token/${token_id}/revoke`,
      actor,
    })
  return revoked.map((one) => one.tokenId)
}

/** Whether a text can be a token at all, by its form and checksum. Throws `ConfigError`. */
export const checkTokenForm = (text: string): void => {
  if (parseOperatorToken(text) === null)
    throw new ConfigError('OPERATOR_TOKEN: not a token as "user token" shows it; it may be cut off')
}

/** Whose token it is, by the event log, and what that person may do. Throws `ConfigError` for one that does not work. */
export const userOfToken = async (
  { pool, eventLog, secrets }: Parts,
  text: string,
): Promise<{ readonly user: string; readonly role: UserRole }> => {
  checkTokenForm(text)
  const parsed = parseOperatorToken(text)
  const state = await operatorsSince(eventLog, noOperators)
  const known = parsed === null ? undefined : state.tokens.get(parsed.tokenId)
  // Of a token whose secret is wrong nothing is told, not even whose it would be.
  const under =
    parsed === null || known === undefined
      ? null
      : secrets.operatorTokenUnder(parsed.secret, known.secret_hmac)
  if (parsed === null || known === undefined || under === null)
    throw new ConfigError('OPERATOR_TOKEN: no token of this installation; "user token" makes one')
  if (known.revoked !== null)
    throw new ConfigError(
      `OPERATOR_TOKEN: token ${known.tokenId} of ${known.user} was revoked at ${known.revoked.at} by ${known.revoked.by}`,
    )
  const row = await userRow(pool, known.user)
  if (row?.created_at.toISOString() !== known.user_created_at)
    throw new ConfigError(
      `OPERATOR_TOKEN: the user ${known.user} it was made for does not exist any more; "user token" makes a new one`,
    )
  const standing = standingOf(known.user, row, state.users.get(known.user))
  if (standing.kind === 'refused') throw new ConfigError(`OPERATOR_TOKEN: ${standing.says}`)
  if (standing.role === 'partner') throw new ConfigError(`OPERATOR_TOKEN: ${partnersElsewhere(known.user)}`)
  // Its secret is here now and at no other time. Where this fails the next command does it.
  if (under !== secrets.keyId())
    await rehash({ eventLog, secrets }, known, parsed.secret).catch(() => undefined)
  return { user: known.user, role: standing.role }
}

const partnersElsewhere = (user: string): string =>
  `${user} is a partner: partners use the dashboard and their keys, not the command line`

/** After a rotation of SECRET_KEY: what is kept of a token's secret is made anew when the token is used. */
const rehash = async (
  { eventLog, secrets }: Pick<Parts, 'eventLog' | 'secrets'>,
  { tokenId: token_id, user }: LoggedToken,
  secret: string,
): Promise<void> => {
  const secret_key = secrets.keyId()
  await append(
    eventLog,
    [
      {
        type: 'OperatorTokenRehashed',
        data: { token_id, user, secret_hmac: secrets.operatorTokenHmac(secret), secret_key },
      },
    ],
    { once: `token/${token_id}/rehash/${secret_key}`, actor: 'system' },
  )
}

/** Of the tokens that work, how many are under each SECRET_KEY, by its id; null: under the first. */
export const tokensUnderKeys = async ({
  eventLog,
}: Pick<Parts, 'eventLog'>): Promise<readonly (string | null)[]> =>
  [...(await operatorsSince(eventLog, noOperators)).tokens.values()]
    .filter(({ revoked }) => revoked === null)
    .map(({ secret_key }) => secret_key)

type TokenEvent = DomainEventOf<'OperatorTokenIssued' | 'OperatorTokenRehashed' | 'OperatorTokenRevoked'>

const append = (
  eventLog: EventLog,
  events: readonly TokenEvent[],
  { once, actor }: { once: string; actor: string },
): Promise<unknown> =>
  appendNext(
    eventLog,
    operatorStream,
    events.map((event, n) =>
      encodeEvent(event, {
        id: eventIdOf(operatorStream, once, n),
        actor,
        effectiveAt: new Date().toISOString(),
      }),
    ),
  )
