import type { FastifyInstance, FastifyRequest } from 'fastify'
import { formOf } from './form.ts'

/**
 * Users choose in each browser whether pages show UTC or local time. A script writes the local times, because the server does not know the
 * browser's time zone. Without scripts, and in files and JSON, times are in UTC.
 */

export type Times = 'utc' | 'local'

export const timesCookie = 'dashboard_times'
const keptSeconds = 365 * 24 * 60 * 60

export const timesOf = ({ cookies }: FastifyRequest): Times =>
  cookies[timesCookie] === 'local' ? 'local' : 'utc'

export const timesRoutes = (pages: FastifyInstance): void => {
  pages.post('/me/times', (request, reply) => {
    const times: Times = formOf(request.body).text('times') === 'local' ? 'local' : 'utc'
    return reply
      .setCookie(timesCookie, times, {
        path: '/',
        httpOnly: true,
        sameSite: 'strict',
        secure: 'auto',
        maxAge: keptSeconds,
      })
      .redirect('/me', 303)
  })
}
