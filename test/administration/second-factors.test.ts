/** The event log records who has a second factor. Each code works only once, and missing data leads to a refusal. */
import { Secret, TOTP } from 'otpauth'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  checkSecondFactor,
  removeSecondFactor,
  renewRecoveryCodes,
  setSecondFactor,
} from '../../src/administration/users/second-factors.ts'
import { freshTotpSecret } from '../../src/administration/users/totp.ts'
import { createUser, listUsers } from '../../src/administration/users/user-changes.ts'
import { openUserDirectory } from '../../src/administration/users/user-directory.ts'
import { insertUser } from '../../src/administration/users/users.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'
import { databaseForFile } from '../support/postgres.ts'

let memory: MemoryEventLog
let eventLog: EventLog
let secret = ''
let codes: readonly string[] = []
const secrets = createSecrets('a secret of at least thirty-two characters')
const parts = (by = secrets) => ({ pool, eventLog, secrets: by })
const actor = 'user:ada'
const stepMs = 30_000
const nowMs = Date.UTC(2026, 11, 31, 23, 59, 45)

const { pool } = await databaseForFile({ max: 8 })
beforeEach(async () => {
  memory = createMemoryEventLog()
  eventLog = memory.client('one')
  await pool.query('delete from users')
  await createUser(parts(), { name: 'ada', role: 'admin', organizationId: null, actor: 'cli:setup' })
  secret = freshTotpSecret()
  ;({ codes } = await set())
})

const codeAt = (atMs: number, of = secret): string =>
  new TOTP({ secret: Secret.fromBase32(of) }).generate({ timestamp: atMs })
/** Sets the factor up in the past, so that the current code is unused. */
const set = () =>
  setSecondFactor(
    parts(),
    { user: 'ada', secret, typed: codeAt(nowMs - 10 * stepMs), actor },
    nowMs - 10 * stepMs,
  )
const logged = async (user = 'ada') => {
  const factor = await openUserDirectory(parts()).secondFactor(user)
  if (factor === null) throw new Error('no factor')
  return factor
}
const check = async (typed: string, { atMs = nowMs, by = secrets, provedBefore = false } = {}) =>
  checkSecondFactor(parts(by), { user: 'ada', factor: await logged(), typed, provedBefore, actor }, atMs)
const events = (type: string) =>
  memory
    .eventsOf('operator')
    .filter((event) => event.type === type)
    .map(({ data, metadata }) => ({ ...JSON.parse(data), by: JSON.parse(metadata).actor }))

describe('setting it up', () => {
  test('is an event without secret or codes, and the stored data are sealed', async () => {
    expect(events('SecondFactorSet')).toMatchObject([{ user: 'ada', by: actor }])
    expect(codes).toHaveLength(10)
    const { rows } = await pool.query('select * from user_second_factors')
    const kept = JSON.stringify([
      rows,
      memory.eventsOf('operator').map(({ data, metadata }) => [data, metadata]),
    ])
    for (const text of [secret, ...codes, ...codes.map((code) => code.replaceAll('-', ''))])
      expect(kept).not.toContain(text)
    expect((await listUsers(parts())).map((one) => one.secondFactor !== null)).toEqual([true])
  })

  test('accepts the current code and no other', async () => {
    await removeSecondFactor(parts(), { user: 'ada', reason: null, actor })
    for (const typed of ['', '000000', codeAt(nowMs - 3 * stepMs), 'not a code', codes[0] ?? ''])
      await expect(setSecondFactor(parts(), { user: 'ada', secret, typed, actor }, nowMs)).rejects.toThrow(
        'this is not the current code',
      )
    expect(events('SecondFactorSet')).toHaveLength(1)
    const typed = ` ${codeAt(nowMs).replace(/(...)/, '$1 ')}`
    await setSecondFactor(parts(), { user: 'ada', secret, typed, actor }, nowMs)
    expect(await check(codeAt(nowMs))).toEqual({ kind: 'used' })
  })

  test('is refused if a factor exists, even if the row is missing', async () => {
    await pool.query('delete from user_second_factors')
    await expect(set()).rejects.toThrow('a second factor already exists')
  })
})

describe('a code from the app', () => {
  test('counts once, and earlier codes no longer count', async () => {
    expect(await check(codeAt(nowMs))).toEqual({ kind: 'right' })
    expect(await check(codeAt(nowMs))).toEqual({ kind: 'used' })
    expect(await check(codeAt(nowMs - stepMs))).toEqual({ kind: 'used' })
    expect(await check(codeAt(nowMs + stepMs))).toMatchObject({ kind: 'right' })
  })

  test('lets only one of eight concurrent browsers in', async () => {
    const verdicts = await Promise.all(Array.from({ length: 8 }, () => check(codeAt(nowMs))))
    expect(verdicts.map(({ kind }) => kind).sort()).toEqual(['right', ...Array(7).fill('used')])
  })

  test('from another secret, or too late, is wrong', async () => {
    for (const typed of [codeAt(nowMs, freshTotpSecret()), codeAt(nowMs - 2 * stepMs), '\u0000', '12345'])
      expect(await check(typed)).toEqual({ kind: 'wrong' })
  })

  test.each([true, false])(
    'a hundred wrong codes a day on a device known before (%s) leave the others their hundred: 200 guesses in total',
    async (provedBefore) => {
      for (let tried = 0; tried < 100; tried++)
        expect(await check('00000x', { provedBefore })).toEqual({ kind: 'wrong' })
      expect(await check(codeAt(nowMs), { provedBefore })).toEqual({ kind: 'limited' })
      const other = { provedBefore: !provedBefore }
      for (let tried = 0; tried < 99; tried++) expect(await check('00000x', other)).toEqual({ kind: 'wrong' })
      expect(await check(codeAt(nowMs), other)).toMatchObject({ kind: 'right' })
      expect(await check('00000x', other)).toEqual({ kind: 'wrong' })
      expect(await check('00000x', other)).toEqual({ kind: 'limited' })
      expect(await check('00000x', { provedBefore })).toEqual({ kind: 'limited' })
    },
  )

  test('after a hundred wrong codes in a day, codes are no longer compared in any process; recovery codes still work', async () => {
    for (let tried = 0; tried < 100; tried++) expect(await check('00000x')).toEqual({ kind: 'wrong' })
    expect(await check(codeAt(nowMs))).toEqual({ kind: 'limited' })
    expect(await check(codes[0] ?? '')).toMatchObject({ kind: 'right' })
    // The next day (UTC) begins fifteen seconds later.
    expect(await check(codeAt(nowMs + stepMs), { atMs: nowMs + stepMs })).toMatchObject({ kind: 'right' })
  })
})

describe('a recovery code', () => {
  test('works once, in any notation, and the event records which code was used', async () => {
    const [, second = ''] = codes
    expect(await check(` ${second.toLowerCase().replaceAll('-', ' ')}`)).toEqual({ kind: 'right' })
    expect(await check(second)).toEqual({ kind: 'used' })
    expect(events('RecoveryCodeUsed')).toMatchObject([{ user: 'ada', code: 2, by: actor }])
  })

  test('lets only one of eight concurrent browsers in', async () => {
    const verdicts = await Promise.all(Array.from({ length: 8 }, () => check(codes[4] ?? '')))
    expect(verdicts.map(({ kind }) => kind).sort()).toEqual(['right', ...Array(7).fill('used')])
    expect(events('RecoveryCodeUsed')).toHaveLength(1)
  })

  test('that was used stays used even if the table is restored', async () => {
    const { rows } = await pool.query('select * from user_second_factors')
    await check(codes[0] ?? '')
    await pool.query('update user_second_factors set sealed_codes = $1', [rows[0].sealed_codes])
    expect(await check(codes[0] ?? '')).toEqual({ kind: 'used' })
  })

  test('is invalid after new codes were made, and so are old rows', async () => {
    const { rows } = await pool.query('select * from user_second_factors')
    const renewed = await renewRecoveryCodes(parts(), { user: 'ada', actor })
    expect(await check(codes[0] ?? '')).toEqual({ kind: 'wrong' })
    expect(await check(renewed.codes[0] ?? '')).toMatchObject({ kind: 'right' })
    await pool.query('update user_second_factors set codes_id = $1, sealed_codes = $2', [
      rows[0].codes_id,
      rows[0].sealed_codes,
    ])
    expect(await check(codes[1] ?? '')).toEqual({ kind: 'broken' })
    expect(await check(codeAt(nowMs))).toMatchObject({ kind: 'right' })
  })
})

describe('the row alone neither grants nor removes a factor', () => {
  test.each([
    ['is missing', 'delete from user_second_factors'],
    ['cannot be opened', `update user_second_factors set sealed_secret = 'x', sealed_codes = 'x'`],
    ['is of another factor', `update user_second_factors set factor_id = '01J8ZQ5V7N3K2M4P6R8T0W1X2Y'`],
  ])('if it %s, no code is right', async (_, statement) => {
    await pool.query(statement)
    expect(await check(codeAt(nowMs))).toEqual({ kind: 'broken' })
    expect(await check(codes[0] ?? '')).toEqual({ kind: 'broken' })
  })

  test("another user's row, copied to this user's id, opens nothing", async () => {
    await createUser(parts(), { name: 'eve', role: 'viewer', organizationId: null, actor: 'cli:setup' })
    const own = freshTotpSecret()
    await setSecondFactor(
      parts(),
      { user: 'eve', secret: own, typed: codeAt(nowMs, own), actor: 'user:eve' },
      nowMs,
    )
    const { factorId } = await logged()
    await pool.query('delete from user_second_factors where user_name = $1', ['ada'])
    await pool.query(`update user_second_factors set user_name = 'ada', factor_id = $1`, [factorId])
    expect(await check(codeAt(nowMs + stepMs, own))).toEqual({ kind: 'broken' })
  })

  test('a leftover row has no effect once the event log records the removal', async () => {
    await pool.query('create temporary table kept as select * from user_second_factors')
    await removeSecondFactor(parts(), { user: 'ada', reason: 'lost the phone', actor: 'cli:root' })
    expect((await pool.query('select from user_second_factors')).rowCount).toBe(0)
    expect(await openUserDirectory(parts()).secondFactor('ada')).toBeNull()
    expect(events('SecondFactorRemoved')).toMatchObject([{ reason: 'lost the phone', by: 'cli:root' }])
    await expect(removeSecondFactor(parts(), { user: 'ada', reason: null, actor })).rejects.toThrow(
      'ada has no second factor',
    )
  })

  test('the row of a user who was deleted and created again by hand is still refused', async () => {
    await pool.query('delete from users')
    await insertUser(pool, { name: 'ada', password: 'x', role: 'admin' })
    expect(await openUserDirectory(parts()).secondFactor('ada')).not.toBeNull()
    expect(await check(codeAt(nowMs))).toEqual({ kind: 'broken' })
  })

  test('a new user with the same name, created by an operator, has no factor', async () => {
    await pool.query('delete from users')
    await createUser(parts(), { name: 'ada', role: 'admin', organizationId: null, actor: 'cli:setup' })
    expect(await openUserDirectory(parts()).secondFactor('ada')).toBeNull()
  })
})
