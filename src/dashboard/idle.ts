import type { FastifyInstance, FastifyRequest } from 'fastify'
import { createOutage } from '../event-log/outage.ts'
import type { Dashboard } from './page.ts'
import { putOffIdleEnd } from './session.ts'

/**
 * A session ends when its user requests nothing for `idleMinutes`. Requests that a page makes by itself, such as for progress, do not count
 * as activity. The page that loads when work has finished counts as activity once, as does the click that started the work.
 */

declare module 'fastify' {
  interface FastifyRequest {
    /** The answer is a page, or a stream, that reloads by itself: the person need not be there. */
    asksByItself: boolean
  }
}

/** In the address that a page asks for to refresh itself. */
export const refreshing = { refresh: 'yes' } as const

const refreshes = (query: unknown): boolean => (query as { refresh?: unknown }).refresh === refreshing.refresh

/** For everything that needs a person. */
export const endWhenIdle = (
  pages: FastifyInstance,
  { foundation: { pool }, idleMinutes, logger }: Dashboard,
): void => {
  const outage = createOutage({ logger, what: 'dashboard: putting off the end of a session' })
  pages.decorateRequest('asksByItself', false)
  pages.addHook('onSend', async ({ session, asksByItself, query }) => {
    // A session that ended during the request is null, although its type does not allow null.
    if (asksByItself || refreshes(query) || session?.user === undefined || session.aging !== true) return
    // If the extension fails, the session ends sooner, but the page is still shown.
    await putOffIdleEnd(pool, session.sessionId, idleMinutes).then(outage.works, outage.failed)
  })
}

/** Why the sign-in page is shown again; null if no session ended for idleness. */
export const idleNotice = (
  { session: { ended } }: FastifyRequest,
  { idleMinutes }: Dashboard,
): string | null =>
  ended === 'idle'
    ? `You were signed out after ${idleMinutes} minutes without a request. Sign in to continue where you were.`
    : null
