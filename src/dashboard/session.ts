import { createHash } from 'node:crypto'
import type fastifySession from '@fastify/session'
import type { FastifyRequest } from 'fastify'
import type pg from 'pg'

/**
 * Sessions are rows, so that signing out, a new password and a deleted user end them on the server. Only sessions of
 * signed-in people are kept: a visitor leaves no row.
 */

declare module 'fastify' {
  interface Session {
    user?: string
  }
}

export const sessionLifetimeMs = 12 * 60 * 60 * 1_000
export const sessionCookie = 'dashboard_session'
export const formCookie = 'dashboard_form'
/** Remembers that a person signed in here before; opens nothing. */
export const deviceCookie = 'dashboard_device'
/** What a sign-in with a provider remembers until the person is back. */
export const providerCookie = 'dashboard_provider'
/** Browsers keep no cookie longer than 400 days (RFC 6265bis). Every sign-in begins them anew. */
export const deviceCookieOptions = {
  path: '/',
  httpOnly: true,
  sameSite: 'strict',
  secure: 'auto',
  maxAge: 400 * 24 * 60 * 60,
} as const

const hashOf = (sessionId: string): Buffer => createHash('sha256').update(sessionId).digest()

const get = async (pool: pg.Pool, sessionId: string) => {
  const { rows } = await pool.query<{ user_name: string }>(
    'select user_name from dashboard_sessions where id_hash = $1 and expires_at > now()',
    [hashOf(sessionId)],
  )
  return rows[0] === undefined
    ? null
    : { user: rows[0].user_name, cookie: { originalMaxAge: sessionLifetimeMs } }
}

/** Every sign-in sweeps up what has expired. */
const put = (pool: pg.Pool, sessionId: string, user: string): Promise<unknown> =>
  pool.query(
    `with expired as (delete from dashboard_sessions where expires_at <= now())
     insert into dashboard_sessions (id_hash, user_name, expires_at)
     values ($1, $2, now() + $3 * interval '1 ms') on conflict (id_hash) do nothing`,
    [hashOf(sessionId), user, sessionLifetimeMs],
  )

const remove = (pool: pg.Pool, sessionId: string): Promise<unknown> =>
  pool.query('delete from dashboard_sessions where id_hash = $1', [hashOf(sessionId)])

/** A sign-in that is open. */
type OpenSession = { readonly createdAt: Date; readonly expiresAt: Date; readonly own: boolean }

const sessionsShownMax = 100

/** Those of a user, the newest first; `own` is the one that asks. */
export const sessionsOf = async (pool: pg.Pool, user: string, sessionId: string): Promise<OpenSession[]> => {
  const { rows } = await pool.query<{ created_at: Date; expires_at: Date; own: boolean }>(
    `select created_at, expires_at, id_hash = $2 as own from dashboard_sessions
      where user_name = $1 and expires_at > now() order by created_at desc, id_hash limit $3`,
    [user, hashOf(sessionId), sessionsShownMax],
  )
  return rows.map(({ created_at, expires_at, own }) => ({
    createdAt: created_at,
    expiresAt: expires_at,
    own,
  }))
}

/** Ends every session of a user but the one that asks. Returns how many. */
export const endOtherSessions = async (pool: pg.Pool, user: string, sessionId: string): Promise<number> => {
  const { rowCount } = await pool.query(
    'delete from dashboard_sessions where user_name = $1 and id_hash <> $2',
    [user, hashOf(sessionId)],
  )
  return rowCount ?? 0
}

export const sessionStore = (pool: pg.Pool): fastifySession.SessionStore => ({
  get: (sessionId, done) =>
    void get(pool, sessionId).then(
      (session) => done(null, session),
      (error: unknown) => done(error),
    ),
  set: (sessionId, { user }, done) =>
    void (user === undefined ? Promise.resolve() : put(pool, sessionId, user)).then(
      () => done(),
      (error: unknown) => done(error),
    ),
  destroy: (sessionId, done) =>
    void remove(pool, sessionId).then(
      () => done(),
      (error: unknown) => done(error),
    ),
})

/** Whom a form's token belongs to: a token of one session is worth nothing in another, nor before signing in. */
export const formOwner = ({ session }: FastifyRequest): string =>
  session.user === undefined ? 'visitor' : session.sessionId
