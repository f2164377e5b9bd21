import { randomBytes } from 'node:crypto'
import { ConfigError } from '../../config.ts'
import type { UserRole } from '../../events/users.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { sameHmac } from '../../guard/secrets/secrets.ts'
import { composeOperatorToken, parseOperatorToken } from '../../keys/operator-token.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { InputFault } from '../input.ts'
import { recordOperation } from '../operator-events.ts'
import { changeUsers } from './change-users.ts'
import { type LoggedToken, noOperators, type OperatorState, operatorsSince } from './operators.ts'
import { standingOf, userRow } from './users.ts'

/** Users' tokens for the command line and the admin API. Only the event log decides which tokens exist and which are revoked. */

type Parts = Pick<Foundation, 'pool' | 'eventLog' | 'secrets'>

type OperatorToken = Omit<LoggedToken, 'secret_hmac' | 'user_created_at'>

/** A user needs one token for each machine, so a user with more tokens than this no longer needs some of them. */
const liveTokensMax = 20

/** Issues a token with the rights of its user. Throws `InputFault` if the user does not exist, and `CommandRefused` if not allowed. */
export const issueOperatorToken = (
  { secrets, ...parts }: Parts,
  { user, actor }: { user: string; actor: string },
): Promise<{ tokenId: string; token: string }> => {
  const { token, tokenId, secret } = composeOperatorToken(randomBytes(256))
  return changeUsers(parts, actor, ({ rows, state }) => {
    const row = rows.find(({ name }) => name === user)
    if (row === undefined)
      throw new InputFault('name', `there is no user "${user}"; "user create" creates one`)
    const standing = standingOf(user, row, state.users.get(user))
    if (standing.kind === 'refused') throw new CommandRefused(standing.says)
    if (standing.role === 'partner') throw new CommandRefused(partnersElsewhere(user))
    const live = [...state.tokens.values()].filter((one) => one.user === user && one.revoked === null)
    if (live.length >= liveTokensMax)
      throw new CommandRefused(
        `${user} has ${live.length} tokens, the maximum; revoke those that are no longer used`,
      )
    const data = {
      token_id: tokenId,
      user,
      secret_hmac: secrets.operatorTokenHmac(secret),
      user_created_at: row.created_at.toISOString(),
    }
    return {
      events: [{ type: 'OperatorTokenIssued', data }],
      writeRow: async () => ({ tokenId, token }),
    }
  })
}

/** Every token ever issued, oldest first. */
export const operatorTokens = async ({ eventLog }: Pick<Parts, 'eventLog'>): Promise<OperatorToken[]> =>
  [...(await operatorsSince(eventLog, noOperators)).tokens.values()].map(
    ({ secret_hmac: _, user_created_at: __, ...token }) => token,
  )

/** Revokes one token of a user, or all. Throws `CommandRefused` if there is none. */
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
      `${user} has no valid token${tokenId === undefined ? '' : ` ${tokenId}`}; see "user tokens"`,
    )
  for (const { tokenId: token_id } of revoked)
    await recordOperation(eventLog, { type: 'OperatorTokenRevoked', data: { token_id, user } }, { actor })
  return revoked.map((one) => one.tokenId)
}

/** Throws `ConfigError` if a string does not have the form of a token, or if its checksum is wrong. */
export const checkTokenForm = (text: string): void => {
  if (parseOperatorToken(text) === null)
    throw new ConfigError(
      'OPERATOR_TOKEN: this is not a token in the form that "user token" shows; it may be incomplete',
    )
}

/** The owner of a token according to the event log, and the owner's rights. Throws `ConfigError` if the token does not work. */
export const userOfToken = async (
  { pool, eventLog, secrets }: Parts,
  text: string,
  now: () => Promise<OperatorState> = () => operatorsSince(eventLog, noOperators),
): Promise<{ readonly user: string; readonly role: UserRole }> => {
  checkTokenForm(text)
  const parsed = parseOperatorToken(text)
  const state = await now()
  const known = parsed === null ? undefined : state.tokens.get(parsed.tokenId)
  // If the secret of a token is wrong, the error does not even reveal the owner's name.
  if (
    parsed === null ||
    known === undefined ||
    !sameHmac(secrets.operatorTokenHmac(parsed.secret), known.secret_hmac)
  )
    throw new ConfigError(
      'OPERATOR_TOKEN: this is not a token of this installation; "user token" creates one',
    )
  if (known.revoked !== null)
    throw new ConfigError(
      `OPERATOR_TOKEN: token ${known.tokenId} of ${known.user} was revoked at ${known.revoked.at} by ${known.revoked.by}`,
    )
  const row = await userRow(pool, known.user)
  if (row?.created_at.toISOString() !== known.user_created_at)
    throw new ConfigError(
      `OPERATOR_TOKEN: the user ${known.user}, for whom the token was created, no longer exists; "user token" creates a new one`,
    )
  const standing = standingOf(known.user, row, state.users.get(known.user))
  if (standing.kind === 'refused') throw new ConfigError(`OPERATOR_TOKEN: ${standing.says}`)
  if (standing.role === 'partner') throw new ConfigError(`OPERATOR_TOKEN: ${partnersElsewhere(known.user)}`)
  return { user: known.user, role: standing.role }
}

const partnersElsewhere = (user: string): string =>
  `${user} is a partner: partners use the dashboard and their keys, not the command line`
