/** The dashboard's host with its own database and without doubles, and an HTTP client that acts as a browser. */
import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import type { FastifyInstance, InjectOptions, LightMyRequestResponse } from 'fastify'
import { PgBoss } from 'pg-boss'
import { afterAll, expect } from 'vitest'
import { projections } from '../../projections/index.ts'
import { adminApi } from '../../src/admin-api/admin-api.ts'
import type { Finding } from '../../src/administration/checks/check.ts'
import { roles } from '../../src/administration/roles.ts'
import { changePassword, createUser } from '../../src/administration/users/user-changes.ts'
import { insertUser } from '../../src/administration/users/users.ts'
import type { AnyCapabilityForm } from '../../src/call/form.ts'
import { createIdempotency } from '../../src/call/idempotency.ts'
import { createOverload, type Overload } from '../../src/call/overload.ts'
import { createRefusedCalls } from '../../src/call/refused-calls.ts'
import { createRequestIds } from '../../src/call/request-id.ts'
import { createHost, type Reach } from '../../src/call/route.ts'
import { createUnauthenticatedRequests } from '../../src/call/unauthenticated.ts'
import { whoami } from '../../src/capabilities/whoami/index.ts'
import { parseConfig, twoPersonOf } from '../../src/config.ts'
import { dashboard } from '../../src/dashboard/dashboard.ts'
import type { ProviderSettings } from '../../src/dashboard/identity-provider.ts'
import type { UserRole } from '../../src/events/users.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { openKeyDirectory } from '../../src/guard/key-directory.ts'
import { createRateLimiter } from '../../src/guard/limits/rate-limit.ts'
import { serveLongWork } from '../../src/jobs/long-work.ts'
import { openPriceBooks, type PriceBooks } from '../../src/ledger/prices/price-books.ts'
import { createHealth } from '../../src/metrics/health.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { createProjector } from '../../src/projector/run.ts'
import { openCapabilities, openOutside } from '../../src/start/capabilities.ts'
import { foldedBy } from '../support/house.ts'
import { keyDirOf } from '../support/key-dir.ts'
import { logger } from '../support/logger.ts'
import { preparedDatabase } from '../support/postgres.ts'

export const secretKey = 'a secret of at least thirty-two characters'

export type DashboardHost = {
  readonly url: string
  readonly host: FastifyInstance
  readonly foundation: Foundation
  readonly prices: PriceBooks
  /** Resolves when the rows include every event in the log. */
  caughtUp(): Promise<void>
  close(): Promise<void>
}

export const openDashboardHost = async ({
  reach = {},
  forms = [],
  environment = {},
  insecureCookies = false,
  overload = createOverload(() => 0),
  provider = null,
  findings,
  lateAfterMs = 10_000,
  apiUrl = null,
  partnersAsOperator = false,
  beside = null,
  localDemoIn = null,
}: {
  reach?: Reach
  /** Forms of capabilities that are served in addition to whoami. */
  forms?: readonly AnyCapabilityForm[]
  environment?: Readonly<Record<string, string>>
  insecureCookies?: boolean
  overload?: Overload
  provider?: ProviderSettings | null
  /** Replaces the findings of the health checks. */
  findings?: () => Promise<readonly Finding[]>
  lateAfterMs?: number
  apiUrl?: string | null
  /** Sends partners' webhooks like the operator's own, so that with `EGRESS_ALLOW` they can reach a receiver on loopback. */
  partnersAsOperator?: boolean
  /** A host whose database the new host shares, like another process of the same installation. Close this shared host last. */
  beside?: DashboardHost | null
  /** Uses the settings of the embedded default, with this DATA_DIR. */
  localDemoIn?: string | null
} = {}): Promise<DashboardHost> => {
  const database =
    beside === null
      ? await preparedDatabase()
      : { url: beside.url, keyDir: keyDirOf(beside.url), drop: async () => undefined }
  const config = parseConfig({
    DATABASE_URL: database.url,
    SECRET_KEY: secretKey,
    DATA_DIR: tmpdir(),
    KEY_DIR: database.keyDir,
    ...environment,
  })
  const foundation = await openFoundation(config, { logger })
  const { eventLog, pool, secrets, ledger, keyedEvents } = foundation
  const open = await openCapabilities([whoami], { foundation, config, logger, metrics: createMetrics() })
  const directory = await openKeyDirectory({ eventLog, listed: [], logger })
  const prices = openPriceBooks({ eventLog, logger })
  await Promise.all([directory.caughtUp, prices.caughtUp])
  const projector = createProjector({
    url: database.url,
    eventLog,
    projections,
    seal: secrets.rowSeal,
    logger,
    owner: randomUUID(),
    // Tests read pages right after they changed something on them.
    waits: { batchIntervalMs: 10 },
  })
  void projector.run()
  const host = createHost(
    {
      directory,
      secrets,
      limiter: createRateLimiter(),
      refusedCalls: createRefusedCalls({ ledger, prices, logger, instanceId: randomUUID() }),
      overload,
      unauthenticated: createUnauthenticatedRequests(logger),
      ledger,
      prices,
      idempotency: createIdempotency({
        pool,
        eventLog,
        keyedEvents,
        secrets,
        sealer: foundation.epochKeys.sealer('idempotent-answer'),
      }),
      requestIds: createRequestIds(),
      clock: Date,
      logger,
    },
    [...open.formsOn('dashboard'), ...forms],
    reach,
  )
  const ways = openOutside(config)
  const outside = partnersAsOperator ? { ...ways, post: ways.postOwn } : ways
  const health = createHealth({ ...foundation, config })
  host.register(
    dashboard(foundation, logger, {
      health: findings === undefined ? health : { ...health, findings },
      insecureCookies,
      twoPerson: twoPersonOf(config),
      outside,
      provider,
      settings: localDemoIn === null ? config : parseConfig({ DATA_DIR: localDemoIn }),
      lateAfterMs,
      apiUrl,
      requiredFactor: config.DASHBOARD_SECOND_FACTOR,
    }),
  )
  host.register(
    adminApi(foundation, logger, {
      twoPerson: twoPersonOf(config),
      settings: config,
      outside,
      publicUrl: null,
    }),
  )
  // Runs jobs, as a worker process would. It starts with the first long-running work.
  let worker: Promise<PgBoss> | undefined
  host.addHook('onSend', async (_, reply) => {
    const at = String(reply.getHeader('location') ?? '')
    if (/^(\/jobs\/|\/admin\/v1\/jobs\/)/.test(at)) worker ??= startWorker(foundation, twoPersonOf(config))
    await worker
  })
  await host.ready()
  return {
    url: database.url,
    host,
    foundation,
    prices,
    caughtUp: () => foldedBy(foundation),
    close: async () => {
      await host.close()
      await (await worker)?.stop({ graceful: true, timeout: 10_000 })
      await projector.stop()
      await directory.stop()
      await prices.stop()
      await foundation.close()
      await database.drop()
    },
  }
}

/** The dashboard's host for all tests of a file. It closes after the last test. */
export const roomForFile = async (
  options: Parameters<typeof openDashboardHost>[0] = {},
): Promise<DashboardHost> => {
  const room = await openDashboardHost(options)
  afterAll(() => room.close())
  return room
}

const startWorker = async (foundation: Foundation, twoPerson: boolean): Promise<PgBoss> => {
  const boss = new PgBoss({
    connectionString: foundation.url,
    createSchema: false,
    max: 2,
    useListenNotify: true,
    schedule: false,
  })
  boss.on('error', () => undefined)
  await boss.start()
  await serveLongWork(boss, foundation, { logger, twoPerson })
  return boss
}

export type Browser = {
  get(url: string, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  /** Opens a form's page and sends the form with its hidden fields, which `fields` can replace. */
  submit(
    formUrl: string,
    fields: Record<string, string | string[]>,
    action?: string,
  ): Promise<LightMyRequestResponse>
  post(url: string, body: string, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  readonly cookies: ReadonlyMap<string, string>
}

let addresses = 0

/** Stores cookies and follows no redirects. By default every browser has a different address on this machine. */
export const openBrowser = (
  host: FastifyInstance,
  remoteAddress = `127.1.${++addresses >> 8}.${addresses & 255}`,
  always: Readonly<Record<string, string>> = {},
): Browser => {
  const cookies = new Map<string, string>()
  const send = async (request: InjectOptions): Promise<LightMyRequestResponse> => {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const response = await host.inject({
      ...request,
      remoteAddress,
      headers: { accept: 'text/html', ...always, ...(cookie === '' ? {} : { cookie }), ...request.headers },
    })
    for (const { name, value, expires } of response.cookies) {
      if (expires !== undefined && expires.getTime() <= Date.now()) cookies.delete(name)
      else cookies.set(name, value)
    }
    return response
  }
  const browser: Browser = {
    cookies,
    get: (url, headers = {}) => send({ method: 'GET', url, headers }),
    post: (url, body, headers = {}) =>
      send({
        method: 'POST',
        url,
        body,
        headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
      }),
    submit: async (formUrl, fields, action = formUrl) => {
      const page = (await browser.get(formUrl)).body
      const once = /name="once" value="([^"]+)"/.exec(page)?.[1]
      const hidden = { _csrf: tokenIn(page), ...(once === undefined ? {} : { once }) }
      return browser.post(action, encoded({ ...hidden, ...fields }))
    },
  }
  return browser
}

export const tokenIn = (page: string): string => /name="_csrf" value="([^"]+)"/.exec(page)?.[1] ?? ''

const entities: Readonly<Record<string, string>> = { lt: '<', gt: '>', quot: '"', '#39': "'", amp: '&' }

/** Decodes an attribute's value in a page. */
export const unescaped = (value: string): string =>
  value.replaceAll(/&(lt|gt|quot|#39|amp);/g, (_, name: string) => entities[name] ?? '')

/** The hidden fields of the form on a page. */
export const hiddenIn = (page: string): Record<string, string[]> => {
  const hidden: Record<string, string[]> = {}
  for (const [, name = '', value = ''] of page.matchAll(
    /<input type="hidden" name="([^"]+)" value="([^"]*)">/g,
  ))
    hidden[name] = [...(hidden[name] ?? []), unescaped(value)]
  const [[, csrf = ''] = []] = [
    ...page.matchAll(/<form method="post"[\s\S]*?name="_csrf" value="([^"]+)"/g),
  ].reverse()
  return { ...hidden, ...(csrf !== '' && { _csrf: [csrf] }) }
}

/** Runs an administrative command, confirms its plan, and follows redirects to its last page. */
export const give = async (
  browser: Browser,
  path: string,
  fields: Record<string, string | string[]>,
): Promise<LightMyRequestResponse> => {
  const plan = await waited(browser, await browser.submit(path, fields))
  if (!plan.body.includes('name="confirmed"')) return plan
  return waited(browser, await browser.post(path, encoded(hiddenIn(plan.body))))
}

/** Waits until long-running work ends, and returns the page with its result. */
export const waited = async (
  browser: Browser,
  first: LightMyRequestResponse,
): Promise<LightMyRequestResponse> => {
  const at = String(first.headers.location ?? '')
  return at.startsWith('/jobs/') ? settled(browser, at) : first
}

/** The page, once its progress has ended. */
export const settled = async (browser: Browser, path: string): Promise<LightMyRequestResponse> => {
  for (let looks = 0; looks < 2_000; looks++) {
    const answer = await browser.get(path)
    if (!answer.body.includes('data-progress')) return answer
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error('it never ended')
}

/** The events of all sign-ins, with their actors. */
export const signInEvents = async ({ foundation: { eventLog } }: Pick<DashboardHost, 'foundation'>) => {
  const streams = (await eventLog.streams('signin-')).sort()
  const events = await Promise.all(streams.map((stream) => eventLog.read(stream, { from: 0, max: 1_000 })))
  return events
    .flat()
    .map(({ type, data, metadata }) => ({ type, ...JSON.parse(data), by: JSON.parse(metadata).actor }))
}

export const encoded = (fields: Record<string, string | string[]>): string =>
  new URLSearchParams(
    Object.entries(fields).flatMap(([name, value]) =>
      [value].flat().map((one): [string, string] => [name, one]),
    ),
  ).toString()

type NewUser = Pick<Parameters<typeof createUser>[1], 'name' | 'role'> & {
  readonly organizationId?: string | null
}

/** A user who has replaced the initial password. */
export const userWhoChose = async (
  { foundation }: Pick<DashboardHost, 'foundation'>,
  { name, role, organizationId = null }: NewUser,
): Promise<{ name: string; password: string }> => {
  const actor = 'cli:setup'
  await createUser(foundation, { name, role, organizationId, actor })
  const chosen = `${name} chose this ${randomUUID()}`
  const { password } = await changePassword(foundation, { name, chosen, actor })
  return { name, password }
}

/** A browser with a signed-in user. A user with a generated password first replaces it with a password that is derived from it. */
export const signedIn = async (
  { host }: DashboardHost,
  { name, password }: { name: string; password: string },
): Promise<Browser> => {
  const browser = openBrowser(host)
  const chosen = `${password}, chosen`
  const { statusCode } = await browser.submit('/login', { name, password })
  if (statusCode === 303 && !(await browser.get('/me')).body.includes('password was generated'))
    return browser
  if (statusCode === 303) {
    await browser.submit('/me', { present: password, new: chosen, again: chosen }, '/me/password')
    return browser
  }
  const again = await browser.submit('/login', { name, password: chosen })
  if (again.statusCode !== 303) throw new Error(`not signed in: ${statusCode}, ${again.statusCode}`)
  return browser
}

/** A browser in which a new user is signed in. */
export const browserOf = async (room: DashboardHost, user: NewUser): Promise<Browser> =>
  signedIn(room, await userWhoChose(room, user))

/** A browser in which the admin `ada` is signed in. */
export const browserOfAda = async (room: DashboardHost): Promise<Browser> => {
  const ada = { name: 'ada', password: 'correct horse battery staple' }
  await insertUser(room.foundation.pool, { ...ada, role: 'admin' })
  return signedIn(room, ada)
}

/** A signed-in browser for each role. The user with the role finance is called `the.finance`. */
export const browserForEachRole = async (
  room: DashboardHost,
  partnerOf: string,
): Promise<(role: UserRole) => Browser> => {
  const browsers = new Map<UserRole, Browser>()
  for (const role of roles) {
    const organizationId = role === 'partner' ? partnerOf : null
    browsers.set(role, await browserOf(room, { name: `the.${role}`, role, organizationId }))
  }
  return (role) => browsers.get(role) ?? expect.unreachable()
}

/** A page without the references to our own script files. */
export const withoutOwnScripts = (page: string): string =>
  page.replaceAll(/<script type="module" src="\/assets\/[0-9a-f]{12}\/[a-z]+\.js"><\/script>/g, '')
