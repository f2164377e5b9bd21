import { argon2, randomBytes, timingSafeEqual } from 'node:crypto'
import type pg from 'pg'

/** People who sign in to the dashboard. Passwords are kept as argon2id PHC strings (OWASP: 19 MiB, 2 passes, 1 lane). */

const memoryKiB = 19_456
const passes = 2
const parallelism = 1
const tagBytes = 32

const tagOf = (password: string, nonce: Buffer): Promise<Buffer> =>
  new Promise((resolve, reject) =>
    argon2(
      'argon2id',
      { message: password, nonce, parallelism, tagLength: tagBytes, memory: memoryKiB, passes },
      (error, tag) => (error === null ? resolve(tag) : reject(error)),
    ),
  )

const unpadded = (bytes: Buffer): string => bytes.toString('base64').replaceAll('=', '')

const phcOf = (salt: string, tag: string): string =>
  `$argon2id$v=19$m=${memoryKiB},t=${passes},p=${parallelism}$${salt}$${tag}`

const hashPassword = async (password: string): Promise<string> => {
  const salt = randomBytes(16)
  return phcOf(unpadded(salt), unpadded(await tagOf(password, salt)))
}

/** Takes the same time for every password. */
const passwordMatches = async (password: string, phc: string): Promise<boolean> => {
  const [, , , , salt = '', tag = ''] = phc.split('$')
  const expected = Buffer.from(tag, 'base64')
  const given = await tagOf(password, Buffer.from(salt, 'base64'))
  return expected.length === given.length && timingSafeEqual(expected, given)
}

/** A password that no one chose, for a user that is made or whose password is to be forgotten. */
export const freshPassword = (): string => randomBytes(15).toString('base64url')

export const userExists = async (pool: pg.Pool, name: string): Promise<boolean> =>
  (await pool.query('select from users where name = $1', [name])).rowCount === 1

/** Creates a user or gives an existing one a new password. */
export const putUser = async (
  pool: pg.Pool,
  { name, password }: { name: string; password: string },
): Promise<void> => {
  await pool.query(
    `insert into users (name, password_phc) values ($1, $2)
     on conflict (name) do update set password_phc = excluded.password_phc`,
    [name, await hashPassword(password)],
  )
}

/** An event's actor is `user:<name>` and has at most 128 characters. */
export const userNameMax = 123
const passwordMax = 1_024

/** No password gives it. Unknown users are checked against it, so that they take as long as known ones. */
const matchedByNone = phcOf('A'.repeat(22), 'A'.repeat(43))

/** Whether there is such a user with this very password. */
export const passwordIsRight = async (
  pool: pg.Pool,
  { name, password }: { name: string; password: string },
): Promise<boolean> => {
  // PostgreSQL takes no text with U+0000, and no user has such a name.
  const possible = name.length <= userNameMax && !name.includes('\0') && password.length <= passwordMax
  const { rows } = await pool.query<{ password_phc: string }>(
    'select password_phc from users where name = $1',
    [possible ? name : ''],
  )
  const matches = await passwordMatches(possible ? password : '', rows[0]?.password_phc ?? matchedByNone)
  return matches && rows[0] !== undefined
}
