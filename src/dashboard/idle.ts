import type { FastifyInstance, FastifyRequest } from 'fastify'
import { createOutage } from '../event-log/outage.ts'
import type { Dashboard } from './page.ts'
import { putOffIdleEnd } from './session.ts'

/**
 * A session ends when its person asks for nothing for `idleMinutes`. What a page asks for by itself, such as how far a work is, says
 * nothing about a person. The page that is there when a work has ended counts once, as does the click that began it.
 */

declare module 'fastify' {
  interface FastifyRequest {
    /** It is answered with a page, or a stream, that asks again by itself: no one need be there. */
    asksByItself: boolean
  }
}

/** For everything that needs a person. */
export const endWhenIdle = (
  pages: FastifyInstance,
  { foundation: { pool }, idleMinutes, logger }: Dashboard,
): void => {
  const outage = createOutage({ logger, what: 'dashboard: putting off the end of a session' })
  pages.decorateRequest('asksByItself', false)
  pages.addHook('onSend', async ({ session, asksByItself }) => {
    // One that was ended while it was asked is null, which its type does not say.
    if (asksByItself || session?.user === undefined || session.aging !== true) return
    // Where it cannot be put off the session ends sooner; the page is there all the same.
    await putOffIdleEnd(pool, session.sessionId, idleMinutes).then(outage.works, outage.failed)
  })
}

/** Why the sign-in page is there again; null where no session ended so. */
export const idleNotice = (
  { session: { ended } }: FastifyRequest,
  { idleMinutes }: Dashboard,
): string | null =>
  ended === 'idle'
    ? `You were signed out after ${idleMinutes} minutes without a request. Sign in to go on where you were.`
    : null
