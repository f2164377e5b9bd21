import type { FastifyInstance, FastifyRequest } from 'fastify'
import { formOf } from './form.ts'

/**
 * A person chooses once in each browser whether pages show instants in UTC or in local time. Only the browser knows its time zone, so its
 * script writes the local times; without scripts, and in files and JSON, they are UTC.
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
        ...{ path: '/', httpOnly: true, sameSite: 'strict', secure: 'auto', maxAge: keptSeconds },
      })
      .redirect('/me', 303)
  })
}
