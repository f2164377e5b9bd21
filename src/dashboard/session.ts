import { createHash } from 'node:crypto'
import type fastifySession from '@fastify/session'
import type { FastifyRequest, Session } from 'fastify'
import type pg from 'pg'

/** Sessions are rows, so that the server can end them when a user signs out, gets a new password or is deleted. */

declare module 'fastify' {
  interface Session {
    user?: string
    /** True if the user signed in with an identity provider and not with the password. */
    byProvider?: boolean
    /** Identifies the password at the time of the sign-in. If the password has changed since then, no session begins. */
    mark?: string
    /** Set if the session ended because its user was inactive. */
    ended?: 'idle'
    /** True if the user's next request must postpone the end of the session. */
    aging?: boolean
  }
}

export const sessionLifetimeMs = 12 * 60 * 60 * 1_000
export const sessionCookie = 'dashboard_session'
export const formCookie = 'dashboard_form'
/** The cookie that contains the data of a sign-in while the person is at the identity provider. */
export const providerCookie = 'dashboard_provider'

const hashOf = (sessionId: string): Buffer => createHash('sha256').update(sessionId).digest()

/** The end of a session is postponed at most once in this interval, so that not every page view causes a write. */
const putOffEveryMs = 60_000

const get = async (pool: pg.Pool, sessionId: string, idleMinutes: number) => {
  const { rows } = await pool.query<{
    user_name: string
    by_password: boolean
    idle: boolean
    aging: boolean
  }>(
    `select user_name, by_password, idle_until <= now() as idle,
            idle_until < now() + $2 * interval '1 minute' - $3 * interval '1 ms' as aging
       from dashboard_sessions where id_hash = $1 and expires_at > now()`,
    [hashOf(sessionId), idleMinutes, putOffEveryMs],
  )
  const [row] = rows
  const cookie = { originalMaxAge: sessionLifetimeMs }
  if (row === undefined) return null
  return row.idle
    ? { ended: 'idle' as const, cookie }
    : { user: row.user_name, byProvider: !row.by_password, aging: row.aging, cookie }
}

/** Thrown if the password was changed, or the user disabled, during the sign-in. */
export class SignInOvertaken extends Error {
  override name = 'SignInOvertaken'
}

/**
 * Stores a session. The user's row is locked, so that a concurrent change that ends the user's sessions either ends this one or prevents it
 * with `SignInOvertaken`. Inactive sessions are kept until they expire, so that the sign-in page can state the reason for their end.
 */
const put = async (
  pool: pg.Pool,
  sessionId: string,
  {
    user,
    byProvider = false,
    mark = '',
    idleMinutes,
  }: Pick<Session, 'user' | 'byProvider' | 'mark'> & { idleMinutes: number },
): Promise<void> => {
  const { rowCount } = await pool.query(
    `with expired as (delete from dashboard_sessions where expires_at <= now())
     insert into dashboard_sessions (id_hash, user_name, expires_at, idle_until, by_password)
     select $1, name, now() + $3 * interval '1 ms', now() + $4 * interval '1 minute', $5 from users
      where name = $2 and disabled_at is null and sha256(convert_to(password_phc, 'UTF8')) = $6 for share`,
    [hashOf(sessionId), user, sessionLifetimeMs, idleMinutes, !byProvider, Buffer.from(mark, 'base64url')],
  )
  if (rowCount === 0) throw new SignInOvertaken()
}

/** Extends a session to `idleMinutes` from now. An ended session stays ended. */
export const putOffIdleEnd = (pool: pg.Pool, sessionId: string, idleMinutes: number): Promise<unknown> =>
  pool.query(
    `update dashboard_sessions set idle_until = now() + $2 * interval '1 minute'
      where id_hash = $1 and idle_until > now()`,
    [hashOf(sessionId), idleMinutes],
  )

const remove = (pool: pg.Pool, sessionId: string): Promise<unknown> =>
  pool.query('delete from dashboard_sessions where id_hash = $1', [hashOf(sessionId)])

type OpenSession = { readonly createdAt: Date; readonly expiresAt: Date; readonly own: boolean }

const sessionsShownMax = 100

/** The open sessions of a user, newest first. `own` marks the current session. */
export const sessionsOf = async (pool: pg.Pool, user: string, sessionId: string): Promise<OpenSession[]> => {
  const { rows } = await pool.query<{ created_at: Date; expires_at: Date; own: boolean }>(
    `select created_at, expires_at, id_hash = $2 as own from dashboard_sessions
      where user_name = $1 and expires_at > now() and idle_until > now() order by created_at desc, id_hash limit $3`,
    [user, hashOf(sessionId), sessionsShownMax],
  )
  return rows.map(({ created_at, expires_at, own }) => ({
    createdAt: created_at,
    expiresAt: expires_at,
    own,
  }))
}

/** Ends every session of a user except the current one, and returns their number. */
export const endOtherSessions = async (pool: pg.Pool, user: string, sessionId: string): Promise<number> => {
  const { rowCount } = await pool.query(
    'delete from dashboard_sessions where user_name = $1 and id_hash <> $2',
    [user, hashOf(sessionId)],
  )
  return rowCount ?? 0
}

export const sessionStore = (pool: pg.Pool, idleMinutes: number): fastifySession.SessionStore => ({
  get: (sessionId, done) =>
    void get(pool, sessionId, idleMinutes).then(
      (session) => done(null, session),
      (error: unknown) => done(error),
    ),
  set: (sessionId, session, done) =>
    void (
      session.user === undefined ? Promise.resolve() : put(pool, sessionId, { ...session, idleMinutes })
    ).then(
      () => done(),
      (error: unknown) => done(error),
    ),
  destroy: (sessionId, done) =>
    void remove(pool, sessionId).then(
      () => done(),
      (error: unknown) => done(error),
    ),
})

/** The owner of a form's token. A token of one session is invalid in another one, and without a session. */
export const formOwner = ({ session }: FastifyRequest): string =>
  session.user === undefined ? 'visitor' : session.sessionId
