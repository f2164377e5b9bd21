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

export const hashPassword = async (password: string): Promise<string> => {
  const salt = randomBytes(16)
  return `$argon2id$v=19$m=${memoryKiB},t=${passes},p=${parallelism}$${unpadded(salt)}$${unpadded(await tagOf(password, salt))}`
}

/** Whether a password gives the stored hash. Takes the same time for every password. */
export const passwordMatches = async (password: string, phc: string): Promise<boolean> => {
  const [, , , , salt = '', tag = ''] = phc.split('$')
  const expected = Buffer.from(tag, 'base64')
  const given = await tagOf(password, Buffer.from(salt, 'base64'))
  return expected.length === given.length && timingSafeEqual(expected, given)
}

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

/** Whether there is such a user with this very password. */
export const signsIn = async (
  pool: pg.Pool,
  { name, password }: { name: string; password: string },
): Promise<boolean> => {
  const { rows } = await pool.query<{ password_phc: string }>(
    'select password_phc from users where name = $1',
    [name],
  )
  return rows[0] !== undefined && passwordMatches(password, rows[0].password_phc)
}
