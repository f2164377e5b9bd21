import { labelOf } from '../administration/input.ts'
import {
  issueOperatorToken,
  operatorTokens,
  revokeOperatorTokens,
} from '../administration/operator-tokens.ts'
import { freshPassword, putUser } from '../administration/users.ts'
import type { Command, Parameter } from './command.ts'
import { table } from './table.ts'

const nameMax = 64
const nameParameter: Parameter = { name: 'name', help: 'such as ada', required: true }

const create: Command = {
  name: 'user create',
  summary: 'create a dashboard user, or give an existing one a new password; it is shown once, here',
  parameters: [nameParameter],
  run: async ({ foundation }, given) => {
    const name = labelOf('name', given.required('name'), nameMax)
    const password = freshPassword()
    await putUser((await foundation()).pool, { name, password })
    return { json: { user: name, password } }
  },
}

const token: Command = {
  name: 'user token',
  summary: "make a user's token for the command line, to be set as OPERATOR_TOKEN; it is shown once, here",
  parameters: [
    nameParameter,
    { name: 'revoke', help: 'revoke the tokens of the user instead, or one of them', kind: 'flag' },
    { name: 'id', help: 'with --revoke: this token only, as "user tokens" lists it' },
  ],
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

export const userCommands: readonly Command[] = [create, token, tokens]
