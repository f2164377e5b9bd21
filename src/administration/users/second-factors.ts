import { createHash, randomBytes } from 'node:crypto'
import type pg from 'pg'
import { ulid } from 'ulid'
import { inTransaction } from '../../concurrency/transaction.ts'
import { recoveryCodesCount, type SecondFactorRefusal } from '../../events/second-factors.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { InputFault } from '../input.ts'
import { changeUsers, type Known, userIn } from './change-users.ts'
import type { LoggedFactor } from './operators.ts'
import { stepOfCode } from './totp.ts'

/**
 * A second factor consists of an authenticator app and recovery codes. The event log decides which users have a second factor, and
 * which recovery codes were used. A row in the database is only needed to verify codes: if the row is missing or cannot be opened,
 * no code is valid.
 */

type Parts = Pick<Foundation, 'pool' | 'eventLog' | 'secrets'>

const factorSealPurpose = 'second factor'

/** The context of each seal, so that a row of another user or of a previous factor cannot be opened. */
const secretContext = (factorId: string): string => `secret/${factorId}`
const codesContext = (factorId: string, codesId: string): string => `codes/${factorId}/${codesId}`

/**
 * The maximum number of wrong codes per day (UTC). Devices on which the user has passed this factor before share one count, and all other
 * devices share a second count, so that strangers cannot lock out the user. NIST SP 800-63B-4 §3.2.2 allows 100 wrong codes in a
 * row. Three of 10^6 codes are valid at a time, so someone who knows the password and guesses 200 codes a day succeeds with a
 * chance of 0.06 % a day. Recovery codes have 80 random bits, which cannot be guessed, and are accepted even after the limit.
 */
const wrongPerDayMax = 100

const noFactor = (user: string): CommandRefused => new CommandRefused(`${user} has no second factor`)

const factorIn = ({ state }: Known, user: string): LoggedFactor => {
  const factor = state.factors.get(user)
  if (factor === undefined) throw noFactor(user)
  return factor
}

/** People type codes with spaces, hyphens and lower-case letters. */
const plain = (typed: string): string => typed.replaceAll(/[\s-]/g, '').toUpperCase()

/** Throws `InputFault` if the code is not valid now. */
const stepTyped = (secret: string, typed: string, nowMs: number): number => {
  const step = stepOfCode({ secret, code: plain(typed) }, nowMs)
  if (step === null)
    throw new InputFault('code', 'this is not the current code: check the clock of your device')
  return step
}

/**
 * Sets up a second factor if the first code is correct. Returns the recovery codes, which are not stored. Throws `CommandRefused`
 * if the user already has a factor.
 */
export const setSecondFactor = async (
  { secrets, ...parts }: Parts,
  { user, secret, typed, actor }: { user: string; secret: string; typed: string; actor: string },
  nowMs: number,
): Promise<{ codes: readonly string[]; factorId: string }> => {
  const step = stepTyped(secret, typed, nowMs)
  const sealer = secrets.sealer(factorSealPurpose)
  const codes = freshRecoveryCodes()
  const [factorId, codesId] = [ulid(), ulid()]
  return changeUsers(parts, actor, (known) => {
    const { named } = userIn(known, user)
    if (known.state.factors.has(user))
      throw new CommandRefused('a second factor already exists: remove it before you set up another one')
    return {
      events: [{ type: 'SecondFactorSet', data: { ...named, factor_id: factorId, codes_id: codesId } }],
      writeRow: async (client) => {
        await client.query(
          `insert into user_second_factors (user_name, factor_id, sealed_secret, codes_id, sealed_codes, last_step)
           values ($1, $2, $3, $4, $5, $6)
           on conflict (user_name) do update
              set factor_id = excluded.factor_id, sealed_secret = excluded.sealed_secret, codes_id = excluded.codes_id,
                  sealed_codes = excluded.sealed_codes, last_step = excluded.last_step,
                  wrong_on = null, wrong = 0, wrong_where_proved = 0`,
          [
            user,
            factorId,
            sealer.seal(secret, secretContext(factorId)),
            codesId,
            sealer.seal(hashesOf(codes, codesId), codesContext(factorId, codesId)),
            step,
          ],
        )
        return { codes, factorId }
      },
    }
  })
}

/** Creates new recovery codes, which make previous ones invalid. Throws `CommandRefused` if there is no second factor. */
export const renewRecoveryCodes = (
  { secrets, ...parts }: Parts,
  { user, actor }: { user: string; actor: string },
): Promise<{ codes: readonly string[] }> => {
  const codes = freshRecoveryCodes()
  const codesId = ulid()
  return changeUsers(parts, actor, (known) => {
    const { named } = userIn(known, user)
    const { factorId } = factorIn(known, user)
    return {
      events: [{ type: 'RecoveryCodesRenewed', data: { ...named, factor_id: factorId, codes_id: codesId } }],
      writeRow: async (client) => {
        const sealed = secrets
          .sealer(factorSealPurpose)
          .seal(hashesOf(codes, codesId), codesContext(factorId, codesId))
        await client.query(
          'update user_second_factors set codes_id = $3, sealed_codes = $4 where user_name = $1 and factor_id = $2',
          [user, factorId, codesId, sealed],
        )
        return { codes }
      },
    }
  })
}

/**
 * Removes the second factor, so that the password is enough to sign in. `reason` is null if users remove their own. Throws
 * `CommandRefused` if the user has no factor.
 */
export const removeSecondFactor = (
  parts: Pick<Parts, 'pool' | 'eventLog'>,
  { user, reason, actor }: { user: string; reason: string | null; actor: string },
): Promise<void> =>
  changeUsers(parts, actor, (known) => {
    const { named } = userIn(known, user)
    const { factorId } = factorIn(known, user)
    return {
      events: [{ type: 'SecondFactorRemoved', data: { ...named, factor_id: factorId, reason } }],
      writeRow: async (client) => {
        await client.query('delete from user_second_factors where user_name = $1', [user])
      },
    }
  })

type FactorVerdict = { readonly kind: 'right' | SecondFactorRefusal }

type Asked = {
  readonly user: string
  /** The user's second factor according to the current event log. */
  readonly factor: LoggedFactor
  readonly typed: string
  /** True if the user has passed this factor on the same device before. */
  readonly provedBefore: boolean
  readonly actor: string
}

/** Checks a code. A correct code counts as used, so if it is submitted twice at the same time, only one attempt succeeds. */
export const checkSecondFactor = async (
  parts: Parts,
  asked: Asked,
  nowMs: number,
): Promise<FactorVerdict> => {
  const code = plain(asked.typed)
  if (isRecoveryCode(code)) return checkRecoveryCode(parts, asked, code)
  return inTransaction(parts.pool, (client) => checkTotpCode(client, parts, asked, code, nowMs))
}

type FactorRow = {
  readonly factor_id: string
  readonly sealed_secret: string
  readonly codes_id: string
  readonly sealed_codes: string
  readonly last_step: string
  readonly wrong_elsewhere: number
  readonly wrong_where_proved: number
}

/** The row that verifies this factor; null if there is none. */
const rowOf = async (
  queries: Pick<pg.Pool, 'query'>,
  { user, factor: { factorId } }: Asked,
  { lock, today }: { lock: boolean; today: string },
): Promise<FactorRow | null> => {
  const { rows } = await queries.query<FactorRow>(
    `select factor_id, sealed_secret, codes_id, sealed_codes, last_step,
            case when wrong_on = $3::date then wrong else 0 end as wrong_elsewhere,
            case when wrong_on = $3::date then wrong_where_proved else 0 end as wrong_where_proved
       from user_second_factors where user_name = $1 and factor_id = $2${lock ? ' for update' : ''}`,
    [user, factorId, today],
  )
  return rows[0] ?? null
}

/** Checks a code under a lock on the row, so that a code used in one browser counts as used in every other. */
const checkTotpCode = async (
  client: pg.PoolClient,
  { secrets }: Parts,
  asked: Asked,
  code: string,
  nowMs: number,
): Promise<FactorVerdict> => {
  const today = new Date(nowMs).toISOString().slice(0, 10)
  const row = await rowOf(client, asked, { lock: true, today })
  const { factorId } = asked.factor
  const secret =
    row === null ? null : secrets.sealer(factorSealPurpose).open(row.sealed_secret, secretContext(factorId))
  if (row === null || secret === null) return { kind: 'broken' }
  const wrong = { elsewhere: row.wrong_elsewhere, whereProved: row.wrong_where_proved }
  const counted = asked.provedBefore ? 'whereProved' : 'elsewhere'
  if (wrong[counted] >= wrongPerDayMax) return { kind: 'limited' }
  const step = stepOfCode({ secret, code }, nowMs)
  if (step === null) {
    wrong[counted]++
    await client.query(
      'update user_second_factors set wrong_on = $2, wrong = $3, wrong_where_proved = $4 where user_name = $1',
      [asked.user, today, wrong.elsewhere, wrong.whereProved],
    )
    return { kind: 'wrong' }
  }
  if (step <= Number(row.last_step)) return { kind: 'used' }
  await client.query('update user_second_factors set last_step = $2 where user_name = $1', [asked.user, step])
  return { kind: 'right' }
}

/** The factor or its codes have changed since they were read, or the code was used in the meantime. */
class CodeSpent extends Error {
  override name = 'CodeSpent'
}

/** An event marks the code as used. If a code is submitted twice at the same time, the second attempt finds the event. */
const checkRecoveryCode = async (parts: Parts, asked: Asked, typed: string): Promise<FactorVerdict> => {
  const { user, factor, actor } = asked
  const { factorId, codesId } = factor
  const row = await rowOf(parts.pool, asked, { lock: false, today: '1970-01-01' })
  const hashes =
    row === null
      ? null
      : parts.secrets.sealer(factorSealPurpose).open(row.sealed_codes, codesContext(factorId, codesId))
  if (hashes === null) return { kind: 'broken' }
  const code = placeOfCode(typed, { hashes, codesId })
  if (code === null) return { kind: 'wrong' }
  try {
    await changeUsers(parts, actor, (known) => {
      const { named } = userIn(known, user)
      const now = factorIn(known, user)
      if (now.factorId !== factorId || now.codesId !== codesId || now.codesUsed.has(code))
        throw new CodeSpent()
      const data = { ...named, factor_id: factorId, codes_id: codesId, code }
      return {
        events: [{ type: 'RecoveryCodeUsed', data }],
        writeRow: async () => undefined,
      }
    })
    return { kind: 'right' }
  } catch (error) {
    if (error instanceof CodeSpent) return { kind: 'used' }
    throw error
  }
}

/** Recovery codes, for a lost authenticator. Each has 80 random bits and works once. */

/** The alphabet of RFC 4648, which has no letters that look like its digits. */
const base32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'
const codeLength = 16

/** New recovery codes in groups of four, as people type them. */
export const freshRecoveryCodes = (): string[] =>
  Array.from({ length: recoveryCodesCount }, () =>
    [...randomBytes(codeLength)]
      .map((byte) => base32[byte % base32.length])
      .join('')
      .replaceAll(/(.{4})(?=.)/g, '$1-'),
  )

const hashOf = (code: string, codesId: string): string =>
  createHash('sha256')
    .update(`${codesId}\n${code.replaceAll('-', '')}`)
    .digest('base64url')

/** The hashes of recovery codes, in the stored form. */
export const hashesOf = (codes: readonly string[], codesId: string): string =>
  codes.map((code) => hashOf(code, codesId)).join(' ')

/** The place of a code in its list, from 1; null if it is not in the list. `typed` has no spaces or hyphens, and only capital letters. */
export const placeOfCode = (typed: string, { hashes, codesId }: { hashes: string; codesId: string }) => {
  const place = hashes.split(' ').indexOf(hashOf(typed, codesId))
  return place === -1 ? null : place + 1
}

const isRecoveryCode = (typed: string): boolean => /^[A-Z2-7]{16}$/.test(typed)
