import type { FastifyInstance, FastifyRequest } from 'fastify'
import { createOutage } from '../concurrency/outage.ts'
import type { Dashboard } from './page.ts'
import { putOffIdleEnd } from './session.ts'

/**
 * A session ends when its user makes no request for `idleMinutes`. Automatic requests of a page, such as for progress, do not count as
 * activity. The page that loads when work has finished counts once, like the click that started the work.
 */

declare module 'fastify' {
  interface FastifyRequest {
    /** True if the page refreshes itself, so that the request does not count as activity. */
    asksByItself: boolean
  }
}

/** The query parameter that a page adds when it refreshes itself. */
export const refreshing = { refresh: 'yes' } as const

const refreshes = (query: unknown): boolean => (query as { refresh?: unknown }).refresh === refreshing.refresh

/** Extends the session after every request that a person makes. */
export const endWhenIdle = (
  pages: FastifyInstance,
  { foundation: { pool }, idleMinutes, logger }: Dashboard,
): void => {
  const outage = createOutage({ logger, what: 'dashboard: extending a session' })
  pages.decorateRequest('asksByItself', false)
  pages.addHook('onSend', async ({ session, asksByItself, query }) => {
    // The session is null if it ended during the request, although its type does not allow null.
    if (asksByItself || refreshes(query) || session?.user === undefined || session.aging !== true) return
    // If the extension fails, the session ends sooner, but the page is still shown.
    await putOffIdleEnd(pool, session.sessionId, idleMinutes).then(outage.works, outage.failed)
  })
}

/** The reason why the sign-in page is shown again; null unless the session ended because of inactivity. */
export const idleNotice = (
  { session: { ended } }: FastifyRequest,
  { idleMinutes }: Dashboard,
): string | null =>
  ended === 'idle'
    ? `You were signed out after ${idleMinutes} minutes without a request. Sign in to continue where you left off.`
    : null
