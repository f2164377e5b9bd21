/** Personal tokens for the command line: who owns them, and when they are refused. */
import { userInfo } from 'node:os'
import { beforeEach, describe, expect, test } from 'vitest'
import { recordOperation } from '../../src/administration/operator-events.ts'
import {
  issueOperatorToken,
  operatorTokens,
  revokeOperatorTokens,
  userOfToken,
} from '../../src/administration/users/operator-tokens.ts'
import { insertUser, setPassword, userRow } from '../../src/administration/users/users.ts'
import { operatorOf } from '../../src/cli/host.ts'
import { parseConfig, twoPersonOf } from '../../src/config.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { composeToken } from '../../src/keys/checked-token.ts'
import { composeOperatorToken } from '../../src/keys/operator-token.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'
import { databaseForFile } from '../support/postgres.ts'

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

let eventLog: EventLog
const secrets = createSecrets('a secret of at least thirty-two characters')
const parts = () => ({ pool, eventLog, secrets })

const { pool } = await databaseForFile({ max: 2 })
for (const name of ['ada', 'bob'])
  await insertUser(pool, { name, password: 'correct horse battery staple', role: 'admin' })
beforeEach(() => {
  eventLog = createMemoryEventLog().client('cli')
})

const issue = (user: string) => issueOperatorToken(parts(), { user, actor: 'cli' })
const refusal = async (token: string): Promise<string> =>
  userOfToken(parts(), token).then(
    ({ user }) => `works for ${user}`,
    (error: Error) => `${error.name}: ${error.message}`,
  )

describe('a token', () => {
  test('identifies the person for whom it was made', async () => {
    const [first, second] = [await issue('ada'), await issue('bob')]
    expect(await userOfToken(parts(), first.token)).toEqual({ user: 'ada', role: 'admin' })
    expect(await userOfToken(parts(), second.token)).toEqual({ user: 'bob', role: 'admin' })
  })

  test('is stored only as a keyed hash', async () => {
    const { token, tokenId } = await issue('ada')
    const [event] = await eventLog.read('operator', { from: 0, max: 10 })
    const secret = token.slice(token.indexOf(tokenId) + tokenId.length + 1, -6)
    expect(secret).toHaveLength(32)
    expect(`${event?.data}${event?.metadata}`).not.toContain(secret)
    expect(JSON.parse(event?.data ?? '')).toMatchObject({ token_id: tokenId, user: 'ada' })
  })

  test("stops working when it is revoked, while the person's other tokens still work", async () => {
    const [first, second] = [await issue('ada'), await issue('ada')]
    expect(
      await revokeOperatorTokens(parts(), { user: 'ada', tokenId: first.tokenId, actor: 'user:bob' }),
    ).toEqual([first.tokenId])
    expect(await refusal(first.token)).toMatch(
      new RegExp(
        `^ConfigError: OPERATOR_TOKEN: token ${first.tokenId} of ada was revoked at .* by user:bob$`,
      ),
    )
    expect(await refusal(second.token)).toBe('works for ada')
    expect(await operatorTokens(parts())).toMatchObject([
      { tokenId: first.tokenId, issuedBy: 'cli', revoked: { by: 'user:bob' } },
      { tokenId: second.tokenId, revoked: null },
    ])
  })

  test("is revoked once, and only with its user's name", async () => {
    const { tokenId } = await issue('ada')
    const revoke = (user: string) => revokeOperatorTokens(parts(), { user, tokenId, actor: 'cli' })
    await expect(revoke('bob')).rejects.toThrow(`bob has no valid token ${tokenId}`)
    await revoke('ada')
    await expect(revoke('ada')).rejects.toThrow(`ada has no valid token ${tokenId}`)
  })

  test('is revoked together with all other tokens of the person', async () => {
    const made = [await issue('ada'), await issue('bob'), await issue('ada')]
    await revokeOperatorTokens(parts(), { user: 'ada', tokenId: undefined, actor: 'cli' })
    expect(
      (await Promise.all(made.map(({ token }) => refusal(token)))).map((said) => said.slice(0, 11)),
    ).toEqual(['ConfigError', 'works for b', 'ConfigError'])
  })

  test('from another installation, with another secret, or truncated is refused without naming its owner', async () => {
    const { token, tokenId } = await issue('ada')
    const unknown =
      'ConfigError: OPERATOR_TOKEN: this is not a token of this installation; "user token" creates one'
    const bytes = Uint8Array.from({ length: 128 }, (_, i) => i)
    expect(await refusal(composeOperatorToken(bytes).token)).toBe(unknown)
    const sameId = Uint8Array.from(tokenId, (character) => base62.indexOf(character))
    const guessed = composeToken('enl_operator_', Uint8Array.from([...sameId, ...bytes]))
    expect(guessed.id).toBe(tokenId)
    expect(await refusal(guessed.token)).toBe(unknown)
    expect(await refusal(token.slice(0, -1))).toContain('not a token in the form that "user token" shows')
    expect(await refusal(token.replace(tokenId.slice(0, 4), '0000'))).toContain('not a token')
    const elsewhere = createSecrets('another secret of thirty-two characters')
    await expect(userOfToken({ ...parts(), secrets: elsewhere }, token)).rejects.toThrow(
      'not a token of this',
    )
  })

  test('does not pass to a later user of the same name', async () => {
    await insertUser(pool, { name: 'eve', password: 'one', role: 'admin' })
    const { token } = await issue('eve')
    await setPassword(pool, { name: 'eve', password: 'two' })
    expect(await refusal(token)).toBe('works for eve')
    await pool.query("delete from users where name = 'eve'")
    expect(await refusal(token)).toContain('the user eve, for whom the token was created, no longer exists')
    await insertUser(pool, { name: 'eve', password: 'three', role: 'admin' })
    expect(await refusal(token)).toContain('the user eve, for whom the token was created, no longer exists')
  })

  test.each([
    ['for a person', 'bob'],
    ['by a person', 'ada'],
  ])('is not made %s who is disabled at that moment', async (_, disabled) => {
    const log = eventLog
    const created = (await userRow(pool, disabled))?.created_at.toISOString() ?? ''
    const of = { user: disabled, user_created_at: created, role: 'admin', organization_id: null } as const
    let isDisabled = false
    eventLog = {
      ...log,
      append: async (...asked) => {
        if (!isDisabled)
          await recordOperation(
            log,
            { type: 'UserDisabled', data: { ...of, reason: 'left' } },
            { actor: 'cli' },
          )
        isDisabled = true
        return log.append(...asked)
      },
    }
    await expect(issueOperatorToken(parts(), { user: 'bob', actor: 'user:ada' })).rejects.toThrow(
      disabled === 'bob' ? 'the user bob was disabled' : 'ada is no longer allowed to change users',
    )
    expect(await operatorTokens(parts())).toEqual([])
  })

  test('cannot be made for a person who has 20 working tokens', async () => {
    for (let n = 0; n < 20; n++) await issue('ada')
    await expect(issue('ada')).rejects.toThrow(
      'ada has 20 tokens, the maximum; revoke those that are no longer used',
    )
    await revokeOperatorTokens(parts(), { user: 'ada', tokenId: undefined, actor: 'cli' })
    await issue('ada')
  })
})

describe('the actor of a command', () => {
  const by = async (environment: Record<string, string>, as?: string): Promise<string> =>
    (await operatorOf(parseConfig(environment), as)(parts() as unknown as Foundation)).actor

  test('is proved by a token; without a token it is a label', async () => {
    const { token } = await issue('ada')
    expect(await by({ OPERATOR_TOKEN: token })).toBe('user:ada')
    expect(await by({ OPERATOR_TOKEN: token, OPERATOR: 'bob' })).toBe('user:ada')
    expect(await by({ OPERATOR_TOKEN: token }, 'ada')).toBe('user:ada')
    expect(await by({ OPERATOR: 'bob' })).toBe('cli:bob')
    expect(await by({ OPERATOR: 'bob' }, 'carol')).toBe('cli:carol')
    expect(await by({}, 'user:ada')).toBe('cli:user:ada')
    // Every command has an actor. The default is the account on the machine, which does not prove an identity.
    expect(await by({})).toBe(`cli:${userInfo().username}`)
    expect(await by({ OPERATOR_TOKEN: '' })).toBe(`cli:${userInfo().username}`)
  })

  test("cannot be anyone but the token's owner", async () => {
    const { token } = await issue('ada')
    await expect(by({ OPERATOR_TOKEN: token }, 'bob')).rejects.toThrow('--as: OPERATOR_TOKEN belongs to ada')
  })

  test('is refused before anything is opened if the token or the label is invalid', () => {
    expect(() => operatorOf(parseConfig({ OPERATOR_TOKEN: 'ada' }), undefined)).toThrow(
      'OPERATOR_TOKEN: this is not a',
    )
    expect(() => operatorOf(parseConfig({}), ' ')).toThrow('it contains only white space')
    expect(() => operatorOf(parseConfig({}), 'a'.repeat(124))).toThrow('at most 123 characters')
    expect(() => operatorOf(parseConfig({ OPERATOR: 'a\u0007' }), undefined)).toThrow('OPERATOR: control')
  })
})

test.each([
  [{}, false],
  [{ DATABASE_URL: 'postgres://127.0.0.1/a' }, true],
  [{ TWO_PERSON: 'on' }, true],
  [{ TWO_PERSON: 'off', DATABASE_URL: 'postgres://127.0.0.1/a' }, false],
])('with %o, two people are needed: %s', (environment, needed) => {
  expect(twoPersonOf(parseConfig(environment))).toBe(needed)
})
