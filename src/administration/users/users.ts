import { argon2, hash, randomBytes, timingSafeEqual } from 'node:crypto'
import type pg from 'pg'
import type { UserRole } from '../../events/users.ts'
import type { LoggedUser } from './operators.ts'

/** People who sign in to the dashboard. Passwords are stored as argon2id PHC strings (OWASP: 19 MiB, 2 passes, 1 lane). */

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

/** The comparison takes the same time for every password. */
const passwordMatches = async (password: string, phc: string): Promise<boolean> => {
  const [, , , , salt = '', tag = ''] = phc.split('$')
  const expected = Buffer.from(tag, 'base64')
  const given = await tagOf(password, Buffer.from(salt, 'base64'))
  return expected.length === given.length && timingSafeEqual(expected, given)
}

/** A generated password, for a new user or for a user whose password must be replaced. */
export const freshPassword = (): string => randomBytes(15).toString('base64url')

/** A row of the users table. The event log has precedence over the row (see `standingOf`). */
export type UserRow = {
  readonly name: string
  readonly created_at: Date
  readonly role: UserRole
  readonly organization_id: string | null
  readonly disabled_at: Date | null
  /** True if the password was generated, and the user has not chosen a new one yet. */
  readonly password_given: boolean
}

export const userColumns = 'name, created_at, role, organization_id, disabled_at, password_given'

/** Inserts a user's row. `given` means that the user must replace the password. */
export const insertUser = async (
  pool: Pick<pg.Pool, 'query'>,
  {
    name,
    password,
    given = false,
    role,
    organizationId = null,
    createdAt = new Date().toISOString(),
  }: {
    name: string
    password: string
    given?: boolean
    role: UserRole
    organizationId?: string | null
    createdAt?: string
  },
): Promise<void> => {
  await pool.query(
    `insert into users (name, password_phc, role, organization_id, created_at, password_given)
     values ($1, $2, $3, $4, $5, $6)`,
    [name, await hashPassword(password), role, organizationId, createdAt, given],
  )
}

/** Sets a new password and ends the user's sessions. `given` means that the user must replace the password. */
export const setPassword = async (
  pool: Pick<pg.Pool, 'query'>,
  { name, password, given = false }: { name: string; password: string; given?: boolean },
): Promise<{ mark: string }> => {
  const passwordPhc = await hashPassword(password)
  const { rowCount } = await pool.query(
    'update users set password_phc = $2, password_given = $3 where name = $1',
    [name, passwordPhc, given],
  )
  if (rowCount !== 1) throw new Error(`the user "${name}" has no row`)
  return { mark: markOf(passwordPhc) }
}

/** Replaces a name that no user can have with an empty name, because PostgreSQL refuses text with U+0000. */
const possibleName = (name: string): string =>
  name.length <= userNameMax && !name.includes('\0') ? name : ''

const markOf = (passwordPhc: string): string => hash('sha256', passwordPhc, 'base64url')

/** The SHA-256 of the stored password hash, which changes with the password; null if the user does not exist. */
export const passwordMark = async (pool: Pick<pg.Pool, 'query'>, name: string): Promise<string | null> => {
  const { rows } = await pool.query<{ password_phc: string }>(
    'select password_phc from users where name = $1',
    [possibleName(name)],
  )
  return rows[0] === undefined ? null : markOf(rows[0].password_phc)
}

/** A user's row; null if the user does not exist. */
export const userRow = async (pool: Pick<pg.Pool, 'query'>, name: string): Promise<UserRow | null> => {
  const { rows } = await pool.query<UserRow>(`select ${userColumns} from users where name = $1`, [
    possibleName(name),
  ])
  return rows[0] ?? null
}

/** The current state of a user. `refused` is the reason why the user may not do anything. */
export type Standing =
  | {
      readonly kind: 'acts'
      readonly user: string
      readonly role: UserRole
      readonly organizationId: string | null
      /** True if the password was generated. With such a password, the user can only open the form that replaces it. */
      readonly passwordGiven: boolean
    }
  | { readonly kind: 'refused'; readonly why: 'missing' | 'disabled' | 'another'; readonly says: string }

/**
 * Combines the row and the event log. Either can disable a user, and the row alone cannot give a role that the log does not give.
 * If a user is not in the log, the row decides.
 */
export const standingOf = (name: string, row: UserRow | null, logged: LoggedUser | undefined): Standing => {
  if (row === null) return { kind: 'refused', why: 'missing', says: `there is no user "${name}"` }
  if (logged !== undefined && logged.createdAt !== row.created_at.toISOString())
    return {
      kind: 'refused',
      why: 'another',
      says: `the user ${name} in the table is not the user in the event log: remove the row, and create the user again`,
    }
  if (logged?.disabled)
    return {
      kind: 'refused',
      why: 'disabled',
      says: `the user ${name} was disabled at ${logged.disabled.at} by ${logged.disabled.by}`,
    }
  if (row.disabled_at !== null)
    return { kind: 'refused', why: 'disabled', says: `the user ${name} is disabled in the table of users` }
  return { kind: 'acts', user: name, ...rightsOf(row, logged), passwordGiven: row.password_given }
}

/** The row is used only for a user who is not in the event log. */
export const rightsOf = (
  row: Pick<UserRow, 'role' | 'organization_id'>,
  logged: Pick<LoggedUser, 'role' | 'organizationId'> = {
    role: row.role,
    organizationId: row.organization_id,
  },
) => ({ role: logged.role, organizationId: logged.organizationId })

/** An event's actor is `user:<name>` and has at most 128 characters. */
export const userNameMax = 123
export const passwordMax = 1_024

/**
 * No password has this hash. The passwords of unknown users are compared with it, so that the answer takes the same time as for
 * known users.
 */
const matchedByNone = phcOf('A'.repeat(22), 'A'.repeat(43))

/** Makes the passwords of these users invalid, which ends their sessions. Returns the names of the users that exist. */
export const removePasswords = async (
  pool: Pick<pg.Pool, 'query'>,
  users: readonly { readonly name: string; readonly createdAt: string }[],
): Promise<string[]> => {
  const { rows } = await pool.query<{ name: string }>(
    `update users u set password_phc = $3 from unnest($1::text[], $2::timestamptz[]) as n (name, created_at)
      where u.name = n.name and u.created_at = n.created_at returning u.name`,
    [users.map(({ name }) => name), users.map(({ createdAt }) => createdAt), matchedByNone],
  )
  return rows.map(({ name }) => name).sort()
}

/** Whether a user with this name and password exists. The user can still be disabled. */
export const passwordIsRight = async (
  pool: pg.Pool,
  { name, password }: { name: string; password: string },
): Promise<boolean> => {
  const possible = possibleName(name) === name && password.length <= passwordMax
  const { rows } = await pool.query<{ password_phc: string }>(
    'select password_phc from users where name = $1',
    [possible ? name : ''],
  )
  const matches = await passwordMatches(possible ? password : '', rows[0]?.password_phc ?? matchedByNone)
  return matches && rows[0] !== undefined
}
