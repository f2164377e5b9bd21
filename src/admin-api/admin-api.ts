import { isUtf8 } from 'node:buffer'
import { randomUUID } from 'node:crypto'
import type { FastifyError, FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { ulid } from 'ulid'
import service from '../../package.json' with { type: 'json' }
import { createAttempts } from '../administration/attempts.ts'
import { capabilityDataOf } from '../administration/capabilities.ts'
import { declarationNamed, declarations } from '../administration/declarations.ts'
import {
  type Asked,
  type Context,
  type Declared,
  type Given,
  isPersonal,
  pageOf,
  rowsDefault,
} from '../administration/declare.ts'
import { InputFault } from '../administration/input.ts'
import { requestLongWork } from '../administration/jobs/long-work.ts'
import { provedOperator } from '../administration/operator.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { mayDo, rolesThatMay } from '../administration/roles.ts'
import { openUserDirectory } from '../administration/users/user-directory.ts'
import type { WebhookOutside } from '../administration/webhooks/webhook-request.ts'
import { safeHeaders } from '../call/answer.ts'
import { parseIdempotencyKey } from '../call/idempotency.ts'
import { parseJson } from '../call/json-text.ts'
import { sendFile } from '../call/streamed.ts'
import { createPixelControls, type PixelControls } from '../capabilities/index.ts'
import { createFairShare, type FairShare } from '../concurrency/fair-share.ts'
import { type Config, ConfigError } from '../config.ts'
import { EventDataError } from '../event-log/stored-event.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { callerAddress } from '../guard/caller-address.ts'
import { CommandRefused, LedgerUnavailable } from '../ledger/command.ts'
import { adminDocumentation } from './documentation.ts'
import { Refused, refusedBy } from './failures.ts'
import { keepAnswer, releaseKey, takeKey } from './once.ts'
import { adminMethodOf, adminOpenApiOf, adminPathOf, jobPath } from './openapi.ts'

/**
 * The administration commands and queries as a JSON API. Every request needs an operator token. Cookies are ignored, so that a page
 * on another site cannot use a person's session.
 */

const bodyMax = 64 * 1024
/** The maximum number of requests per minute with an invalid token from one address. */
const refusedPerMinute = 30

/** The maximum number of concurrent requests of all users in this process. A query of a whole ledger takes minutes. */
const runningMax = 8
const tooMuch = 'too many requests are in progress; wait until one of your requests ends'

type Options = {
  readonly twoPerson: boolean
  readonly settings: Config
  readonly outside: WebhookOutside
  /** The dashboard's public address without a trailing slash; null for the address of the request. */
  readonly publicUrl: string | null
}

export const adminApi =
  (foundation: Foundation, logger: Logger, options: Options): FastifyPluginAsync =>
  async (host) => {
    const pixel = createPixelControls({ ...foundation, logger })
    host.addHook('onClose', pixel.close)
    const contextOf = contextsOf({ ...options, foundation, logger, pixel })
    const offered = declarations.filter(({ interfaces }) => interfaces.includes('admin API'))
    // Created on the first request, because this takes about 25 ms of processor time.
    let document: string | undefined

    acceptJson(host)
    host.setErrorHandler((error: FastifyError, request, reply) => sendFault(logger, error, request, reply))
    await host.register(adminDocumentation(offered))
    host.get('/admin/openapi.json', (_, reply) => {
      document ??= JSON.stringify(adminOpenApiOf(offered, service.version))
      return reply.headers(safeHeaders).type('application/json; charset=utf-8').send(document)
    })
    host.all('/admin/v1/*', async () => {
      throw new Refused('missing', 'this command or query does not exist; /admin/openapi.json lists them')
    })
    const showJob = declarationNamed('jobs show')
    host.get<{ Params: { id: string } }>(`${jobPath}/:id`, async (request, reply) => {
      const context = await contextOf(request, showJob)
      return send(reply, (await showJob.read({ id: request.params.id }).run(context)).json)
    })
    const { enter } = createFairShare(() => runningMax)
    for (const declared of offered) declaredRoute(host, declared, { contextOf, enter })
  }

const acceptJson = (host: FastifyInstance): void => {
  host.removeAllContentTypeParsers()
  host.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer', bodyLimit: bodyMax },
    (_, bytes: Buffer, done) => {
      // Checked first, because decoding replaces invalid bytes with U+FFFD.
      if (!isUtf8(bytes)) return done(new Refused('body', 'the body is not UTF-8'))
      try {
        done(null, parseJson(bytes.toString()))
      } catch (error) {
        done(new Refused('body', `the body is not JSON: ${error instanceof Error ? error.message : error}`))
      }
    },
  )
}

const sendFault = (
  logger: Logger,
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply => {
  const { status, retryAfterSeconds, error: category, message, code, field } = refusedBy(error)
  const requestId = ulid()
  if (status >= 500)
    logger.error({ err: error, requestId, path: request.routeOptions.url }, 'admin API: a request failed')
  if (retryAfterSeconds !== null) reply.header('retry-after', retryAfterSeconds)
  if (status === 401) reply.header('www-authenticate', 'Bearer')
  const details = field === null ? {} : { field }
  return send(reply.code(status), { error: category, message, code, request_id: requestId, details })
}

type ContextOf = (request: FastifyRequest, declared: Declared) => Promise<Context>

/** Returns a function that checks the token and the role of a request. */
const contextsOf = ({
  foundation,
  logger,
  pixel,
  twoPerson,
  settings,
  outside,
  publicUrl,
}: Options & {
  readonly foundation: Foundation
  readonly logger: Logger
  readonly pixel: PixelControls
}): ContextOf => {
  const users = openUserDirectory(foundation)
  const attempts = createAttempts(foundation, { what: 'admin api', perMinute: refusedPerMinute })

  const ownerOf = async (request: FastifyRequest) => {
    const [, token] = /^Bearer ([!-~]{1,200})$/.exec(request.headers.authorization ?? '') ?? []
    try {
      if (token === undefined) throw new ConfigError('an operator token is required: Authorization: Bearer …')
      return await users.ownerOf(token)
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      const waitSeconds = await attempts(callerAddress(request))
      if (waitSeconds !== null)
        throw new Refused('limited', `too many invalid tokens; try again in ${waitSeconds} s`, {
          retryAfterSeconds: waitSeconds,
        })
      throw new Refused('unauthorized', error.message.replace('OPERATOR_TOKEN: ', ''))
    }
  }

  return async (request, declared) => {
    const { user, role } = await ownerOf(request)
    if (!mayDo(role, declared.action))
      throw new Refused(
        'forbidden',
        `${user} has the role ${role}, but "${declared.name}" requires ${rolesThatMay(declared.action)}`,
      )
    return {
      foundation,
      logger,
      twoPerson,
      requestedAt: new Date().toISOString(),
      operator: { ...provedOperator(user), role },
      outside: async () => outside,
      data: async () => capabilityDataOf(foundation, { settings, logger }),
      pixel: (use) => use(pixel),
      progress: () => undefined,
      caughtUp: () => catchUp(foundation, logger),
      dashboardUrl: async () => publicUrl ?? `${request.protocol}://${request.host}`,
    }
  }
}

const declaredRoute = (
  host: FastifyInstance,
  declared: Declared,
  { contextOf, enter }: { readonly contextOf: ContextOf; readonly enter: FairShare['enter'] },
): void => {
  const url = adminPathOf(declared)
  const method = adminMethodOf(declared)
  host.route({
    method,
    url,
    handler: async (request, reply) => {
      const context = await contextOf(request, declared)
      const { given, stretch } = givenIn(request, declared)
      try {
        const asked = readAs(declared, given)
        const leave = enter(context.operator.actor)
        if (leave === null) throw new Refused('limited', tooMuch, { retryAfterSeconds: 1 })
        const { file } = asked
        if (file !== undefined)
          return await sendFile(reply.headers(safeHeaders), file, (write) =>
            file.write(context, write).finally(leave),
          )
        const work = { declared, given, asked, context }
        const answer = method === 'POST' ? changed(request, reply, work) : found(stretch, work)
        return send(reply, await answer.finally(leave))
      } catch (error) {
        throw namedAsIn(declared, given, error)
      }
    },
  })
  host.route({
    method: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'].filter((one) => one !== method),
    url,
    handler: async () => {
      throw new Refused('method', `${url} accepts ${method}`)
    },
  })
}

type Asking = { readonly limit?: string | undefined; readonly cursor?: string | undefined }

/** The values in a request, and the requested rows of a list. */
const givenIn = (
  { body, query }: FastifyRequest,
  declared: Declared,
): { readonly given: Given; readonly stretch: Asking } => {
  if (adminMethodOf(declared) === 'POST') {
    if (typeof body !== 'object' || body === null || Array.isArray(body))
      throw new Refused('body', 'a JSON object is expected')
    return { given: body as Given, stretch: {} }
  }
  if (declared.columns === undefined) return { given: query as Given, stretch: {} }
  const { limit, cursor, ...given } = query as Record<string, string>
  return { given, stretch: { limit, cursor } }
}

const send = (reply: FastifyReply, body: object): FastifyReply =>
  reply.headers(safeHeaders).type('application/json; charset=utf-8').send(JSON.stringify(body))

/** Throws `InputFault` for an invalid value, and for the path of a file on this host, which only the command line accepts. */
const readAs = (declared: Declared, given: Given): Asked => {
  const path = declared.fields.find(({ name, control }) => control === 'file' && Object.hasOwn(given, name))
  if (path !== undefined) throw new InputFault(path.name, 'only the command line accepts the path of a file')
  return declared.read(given)
}

/** The error, with the field's JSON name instead of its command-line name. */
const namedAsIn = ({ fields }: Declared, given: Given, error: unknown): unknown => {
  if (!(error instanceof InputFault) || Object.hasOwn(given, error.field)) return error
  const field = fields.find(({ flag }) => flag === error.field)
  return new InputFault(field?.name ?? error.field, error.message)
}

/**
 * Whether the request asks for the plan only. Throws `InputFault` for any other parameter in the URL, because it may be a misspelt `plan`.
 */
const isPlan = (query: unknown): boolean => {
  const { plan = 'false', ...others } = query as Record<string, unknown>
  const [other] = Object.keys(others)
  if (other !== undefined) throw new InputFault(other, 'the URL accepts only "plan"; send values in the body')
  if (plan !== 'true' && plan !== 'false')
    throw new InputFault('plan', `${JSON.stringify(plan)} is neither true nor false`)
  return plan === 'true'
}

type Work = {
  readonly declared: Declared
  readonly given: Given
  readonly asked: Asked
  readonly context: Context
}

const changed = async (
  { query, headers }: FastifyRequest,
  reply: FastifyReply,
  { declared, given, asked: { plan, run }, context }: Work,
): Promise<object> => {
  if (isPlan(query)) {
    const { says, json = {} } = await plan(context)
    return { dry_run: true, would: says, ...json }
  }
  const answerNow = async (): Promise<object> => {
    if (declared.long === undefined) return (await run(context)).json
    // The plan throws if the work would be refused, so that no job is started for it. The plan of a query is empty.
    await plan(context)
    const { foundation, operator, logger } = context
    const id = randomUUID()
    await requestLongWork(foundation, { id, declared, given, operator }, logger)
    return accepted(reply, { job_id: id, name: declared.name, state: 'waiting' })
  }
  const header = headers['idempotency-key']
  // A query about a person changes nothing, and hashes of its values must not be stored.
  if (header === undefined || isPersonal(declared)) return answerNow()
  const key = typeof header === 'string' ? parseIdempotencyKey(header) : null
  if (key === null) throw new InputFault('Idempotency-Key', 'one key of 1 to 255 visible ASCII characters')
  const { foundation } = context
  const request = { user: context.operator.actor, key, asked: `${declared.name} ${JSON.stringify(given)}` }
  const before = await takeKey(foundation, request)
  if (before !== null) {
    reply.header('idempotent-replayed', 'true')
    return declared.long === undefined ? JSON.parse(before) : accepted(reply, JSON.parse(before))
  }
  const json = await answerNow().catch(async (error: unknown) => {
    // After each of these errors, it is certain that nothing was done.
    if (
      error instanceof InputFault ||
      error instanceof CommandRefused ||
      error instanceof EventDataError ||
      error instanceof LedgerUnavailable
    )
      await releaseKey(foundation, request)
    throw error
  })
  const { secret } = declared
  const kept = secret !== undefined && secret in json ? { ...json, [secret]: null } : json
  // The change has been made, so a failure to store the answer is only logged. A repeated request is then answered with "outcome unknown".
  await keepAnswer(foundation, request, JSON.stringify(kept)).catch((error: unknown) =>
    context.logger.warn({ err: error, command: declared.name }, 'admin API: an answer was not kept'),
  )
  return json
}

const accepted = (reply: FastifyReply, job: Job): Job => {
  reply.code(202).header('location', `${jobPath}/${job.job_id}`)
  return job
}

type Job = { readonly job_id: string; readonly name: string; readonly state: string }

const pageMax = 1_000

const found = async ({ limit, cursor }: Asking, { declared, asked, context }: Work): Promise<object> => {
  if (declared.columns === undefined) return (await asked.run(context)).json
  const max = limit === undefined ? rowsDefault : Number(limit)
  if (!Number.isInteger(max) || max < 1 || max > pageMax)
    throw new InputFault('limit', `"${limit}" is not a whole number from 1 to ${pageMax}`)
  const { rows, next, lacks } = await pageOf(asked, context, { cursor: cursor ?? null, max })
  return { items: rows, next_cursor: next, ...(lacks !== null && { incomplete: lacks }) }
}
