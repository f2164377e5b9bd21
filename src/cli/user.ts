import { labelOf } from '../administration/input.ts'
import {
  issueOperatorToken,
  operatorTokens,
  revokeOperatorTokens,
} from '../administration/users/operator-tokens.ts'
import type { Command } from './command.ts'
import { secondFactor } from './second-factor.ts'
import { table } from './table.ts'
import { nameMax, nameParameter, userChangeCommands } from './user-changes.ts'
import { inviteCommand } from './user-invite.ts'

const token: Command = {
  name: 'user token',
  summary: "make a user's token for the command line, to be set as OPERATOR_TOKEN; it is shown once, here",
  parameters: [
    nameParameter,
    { name: 'revoke', help: 'revoke the tokens of the user instead, or one of them', kind: 'flag' },
    { name: 'id', help: 'with --revoke: this token only, as "user tokens" lists it' },
  ],
  changes: {
    of: 'access',
    asks: 'never',
    left: 'A token may be made that no one has seen, or revoked: "user tokens" says so.',
    plan: async ({ foundation }, given) => {
      const user = labelOf('name', given.required('name'), nameMax)
      if (!given.flag('revoke')) return { says: [`Make ${user} a token for the command line.`] }
      const id = given.text('id')
      const ended = (await operatorTokens(await foundation())).filter(
        (one) => one.user === user && one.revoked === null && (id === undefined || one.tokenId === id),
      )
      return {
        says: [
          `Revoke of ${user}: ${ended.map(({ tokenId }) => tokenId).join(', ') || 'no token that works'}.`,
        ],
        asks: 'always',
      }
    },
  },
  run: async ({ foundation }, given) => {
    const user = labelOf('name', given.required('name'), nameMax)
    const open = await foundation()
    if (given.flag('revoke')) {
      const revoked = await revokeOperatorTokens(open, {
        user,
        tokenId: given.text('id'),
        ...open.operator,
      })
      return {
        json: { user, revoked },
        lines: [`revoked of ${user}: ${revoked.join(', ')}`],
      }
    }
    const issued = await issueOperatorToken(open, { user, ...open.operator })
    return { json: { user, token_id: issued.tokenId, token: issued.token } }
  },
}

const tokens: Command = {
  name: 'user tokens',
  summary: 'list the tokens for the command line, and who made and revoked them',
  parameters: [{ name: 'name', help: 'of this user only' }],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const user = given.text('name')
    const listed = (await operatorTokens(await foundation()))
      .filter((one) => user === undefined || one.user === user)
      .map((one) => ({
        user: one.user,
        token_id: one.tokenId,
        issued_at: one.issuedAt,
        issued_by: one.issuedBy,
        revoked_at: one.revoked?.at ?? null,
        revoked_by: one.revoked?.by ?? null,
      }))
    return { json: listed, lines: listed.length === 0 ? ['there are no tokens'] : table(listed) }
  },
}

export const userCommands: readonly Command[] = [
  ...userChangeCommands,
  inviteCommand,
  secondFactor,
  token,
  tokens,
]
