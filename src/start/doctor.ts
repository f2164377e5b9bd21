import { X509Certificate } from 'node:crypto'
import pg from 'pg'
import pino from 'pino'
import { Agent, fetch } from 'undici'
import {
  type Check,
  type Finding,
  type Found,
  fine,
  lookAt,
  measured,
  reasonOf,
  wrong,
} from '../administration/checks/check.ts'
import { databaseCheck, rowChecks, settingChecks } from '../administration/checks/database.ts'
import {
  actsIn,
  eventLogCheck,
  type InLog,
  keyChecks,
  logChecks,
} from '../administration/checks/event-log.ts'
import { type Host, hostChecks } from '../administration/checks/host.ts'
import { createProjectionLags } from '../administration/projections/projections.ts'
import { capabilities } from '../capabilities/index.ts'
import { within } from '../concurrency/deadline.ts'
import type { Config } from '../config.ts'
import { createIdentityProvider } from '../dashboard/identity-provider.ts'
import type { EventLog } from '../event-log/port.ts'
import { addressesNow } from '../foundation/addresses.ts'
import { runningPostgres, serviceUrlOf } from '../foundation/embedded/server.ts'
import { openNamed } from '../foundation/open-event-log.ts'
import { secretKeyFault } from '../foundation/secret-key.ts'
import { withSessionSettings } from '../foundation/session-settings.ts'
import { parseSoundConfig } from '../foundation/sound-config.ts'
import { defaultMetricsPort } from '../metrics/host.ts'
import { checkSurroundings } from './preflight.ts'
import { providerOf } from './provider.ts'
import { readTls } from './tls.ts'

/** Runs all checks, whether or not the service is running, and returns the findings in display order. Changes nothing. Never rejects. */
export async function examine(
  environment: Readonly<Record<string, string | undefined>>,
): Promise<readonly Finding[]> {
  const { config, faults } = parseSoundConfig(environment)
  const host: Host = { config, environment, faults: [...faults.values()] }
  const ofCapabilities = capabilities.flatMap(({ checks }) => checks?.(config) ?? [])
  const outside = lookAt([...hostChecks, ...startChecks, ...ofCapabilities], host)
  const inside = faults.has('DATABASE_URL') || faults.has('EVENT_LOG_URL') ? [withoutAddress] : stores(config)
  return [...(await outside), ...(await inside)]
}

const withoutAddress: Finding = {
  about: 'database',
  level: 'warning',
  says: 'not checked, because its address is invalid',
  remedy: 'Correct DATABASE_URL and EVENT_LOG_URL, and run this command again.',
  figures: {},
}

const skipped = (missing: Check<never>, checks: readonly Pick<Check<never>, 'name'>[]): Finding => ({
  about: missing.name,
  level: 'warning',
  says: `these checks need it and were skipped: ${checks.map(({ name }) => name).join(', ')}`,
  remedy: `Correct the fault of the ${missing.name}, then run this command again.`,
  figures: {},
})

const inDatabase = [...settingChecks, ...rowChecks]
const inLog = [...logChecks, ...keyChecks]

/** The time limit for connecting, and for each query. */
const answerMaxMs = 4_000
const connectionsMax = 4
const closeMaxMs = 1_000
const silent = pino({ level: 'silent' })

/** Checks the database first. If it does not answer, a single finding replaces the checks that would fail for that reason. */
async function stores(config: Config): Promise<readonly Finding[]> {
  const located = await locate(config).catch((error: unknown) => wrong(reasonOf(error)))
  if (!('url' in located)) {
    const findings = await lookAt([{ ...databaseCheck, look: () => located }], undefined)
    return located.state === 'fine'
      ? findings
      : [...findings, skipped(databaseCheck, [...inDatabase, ...inLog])]
  }
  const { url, where } = located
  const pool = new pg.Pool({
    connectionString: withSessionSettings(url),
    max: connectionsMax,
    connectionTimeoutMillis: answerMaxMs,
    query_timeout: answerMaxMs,
    application_name: 'doctor',
  })
  const clients = new Set<pg.PoolClient>()
  pool.on('error', () => undefined)
  pool.on('connect', (client) => void clients.add(client))
  let eventLog: EventLog | null = null
  try {
    const database = await lookAt([databaseCheck], { pool, where })
    if (database.some(({ level }) => level === 'fault'))
      return [...database, skipped(databaseCheck, [...inDatabase, ...inLog])]
    const { EVENT_LOG_URL, EVENT_LOG_PREFIX: prefix } = config
    eventLog = await openNamed({ variable: 'EVENT_LOG_URL', url: EVENT_LOG_URL ?? url, prefix }, silent)
    const on: InLog = {
      config,
      pool,
      eventLog,
      where,
      thorough: true,
      acts: actsIn(eventLog),
      projectionLags: createProjectionLags({
        pool,
        eventLog,
        // The default measures from the time at which this process first saw the newest event, and this process has just started.
        headAgeMs: (last) => Date.now() - last.recordedAtMs,
      }),
    }
    const log = await lookAt([eventLogCheck], on, answerMaxMs)
    const answers = log.every(({ level }) => level === 'ok')
    const rest = await lookAt([...inDatabase, ...(answers ? inLog : [])], on)
    return [...database, ...log, ...(answers ? [] : [skipped(eventLogCheck, inLog)]), ...rest]
  } catch (error) {
    return lookAt([{ ...eventLogCheck, look: () => wrong(reasonOf(error)) }], undefined)
  } finally {
    await within(Promise.allSettled([eventLog?.close(), pool.end()]), { waitMs: closeMaxMs }, () => undefined)
    // If a server hangs, `end` does not close its connections.
    for (const client of clients) Object(client).connection?.stream?.destroy()
  }
}

async function locate({
  DATABASE_URL: url,
  DATA_DIR: dataDir,
}: Config): Promise<Found | { readonly url: string; readonly where: string }> {
  if (url !== undefined) return { url, where: `at ${placeOf(url)}` }
  const running = await runningPostgres(dataDir)
  if (running.state === 'none') return fine(`not created in ${dataDir} yet; the first start creates it`)
  if (running.state !== 'stopped') return { url: serviceUrlOf(running.url), where: `embedded in ${dataDir}` }
  return wrong(`the embedded PostgreSQL in ${dataDir} is not running`, {
    advice:
      'Correct the other faults first. Then start the service, which starts PostgreSQL: npm start. If it cannot start, it prints the reason; if PostgreSQL does not start, read the end of postgres.log in that directory.',
  })
}

/** Only host and port, because the rest may contain the password. */
const placeOf = (url: string): string => {
  try {
    const { host, port } = new pg.Client({ connectionString: url })
    return `${host}:${port}`
  } catch {
    return 'the address in DATABASE_URL'
  }
}

/** Checks whether the host has everything that the service needs to start, and whether the service is running. */
export const startChecks: readonly Check<Pick<Host, 'config'>>[] = [
  {
    name: 'surroundings',
    severity: 'fault',
    advice: 'Correct the variable. Otherwise, the service cannot start.',
    look: async ({ config }) => {
      try {
        await checkSurroundings(config)
        const fault = await secretKeyFault(config)
        if (fault !== null) return wrong(fault)
        return fine('the configured addresses, certificates and location files exist')
      } catch (error) {
        return wrong(reasonOf(error))
      }
    },
  },
  {
    name: 'TLS',
    severity: 'fault',
    // The figure is the number of days since the expiry, so it is negative until then.
    bound: { unit: 'days', warning: -14, fault: 0 },
    advice:
      'Renew it, and rename the new files over those in TLS_CERT and TLS_KEY. The service uses them within a minute.',
    look: async ({ config }) => {
      // If the files cannot be read, the check "surroundings" reports that.
      const files = await readTls(config).catch(() => null)
      if (files === null) return []
      const { validFrom, validTo, subject } = new X509Certificate(files.cert)
      const whose = `the certificate of ${subject.replaceAll('\n', ', ')}`
      if (Date.parse(validFrom) > Date.now()) return wrong(`${whose} is valid only from ${validFrom}`)
      const days = (Date.now() - Date.parse(validTo)) / 86_400_000
      const says = days > 0 ? `expired ${Math.floor(days)} days ago` : `expires in ${Math.floor(-days)} days`
      return measured(days, `${whose} ${says}`)
    },
  },
  {
    name: 'service',
    severity: 'warning',
    advice: 'If the service should run on this host, start it: npm start.',
    look: async ({ config }) => Promise.all((await placesOf(config)).map(serviceAt)),
  },
  {
    name: 'identity provider',
    severity: 'warning',
    advice:
      'Check OIDC_ISSUER, and whether this host can reach it. Until it answers, people can sign in only with passwords.',
    look: async ({ config }) => {
      const settings = config.ROLES.includes('dashboard') ? providerOf(config) : null
      if (settings === null) return []
      try {
        await createIdentityProvider(settings).begin(nowhere)
        return fine(`the identity provider ${settings.issuer} answers`)
      } catch (error) {
        const cause = error instanceof Error && error.cause !== undefined ? error.cause : null
        return wrong(`${settings.issuer}: ${reasonOf(error)}${cause === null ? '' : ` (${reasonOf(cause)})`}`)
      }
    },
  },
]

/** The redirect URL is required, but never used here, because this check only requests the provider's metadata. */
const nowhere = 'https://localhost/'

type Place = { readonly variable: string; readonly url: string }

async function placesOf(config: Config): Promise<readonly Place[]> {
  const { ROLES, METRICS_HOST, METRICS_PORT } = config
  const { apiUrl, dashboardUrl } = await addressesNow(config)
  const hosts = [
    ...(ROLES.includes('api') ? [{ variable: 'API_PORT', url: apiUrl }] : []),
    ...(ROLES.includes('dashboard') ? [{ variable: 'DASHBOARD_PORT', url: dashboardUrl }] : []),
  ]
  // Without METRICS_PORT, the metrics can be on any free port.
  if (METRICS_PORT === undefined && hosts.length > 0) return hosts
  const host = METRICS_HOST.includes(':') ? `[${METRICS_HOST}]` : METRICS_HOST
  const url = `http://${host}:${METRICS_PORT ?? defaultMetricsPort}`
  return [...hosts, { variable: 'METRICS_PORT', url }]
}

const serviceMaxMs = 3_000

/** Does not verify the certificate, which contains the name that partners use. This check connects to the host's address instead. */
const own = new Agent({ connect: { rejectUnauthorized: false } })

async function serviceAt({ variable, url }: Place): Promise<Found> {
  // A host that listens on all addresses is checked at the loopback address.
  const reached = url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')
  type Answer = {
    readonly status?: string
    readonly checks?: Readonly<
      Record<string, { readonly status: string; readonly found?: readonly string[] }>
    >
  }
  let answer: Answer
  try {
    const signal = AbortSignal.timeout(serviceMaxMs)
    const response = await fetch(`${reached}/readyz`, { dispatcher: own, signal })
    answer = Object(await response.json())
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    const code = Object(cause).code
    return code === 'ECONNREFUSED' || code === 'EADDRNOTAVAIL'
      ? wrong(`nothing is listening at ${url} (${variable})`)
      : wrong(`the program at ${url} (${variable}) is not this service: ${reasonOf(cause)}`, {
          severity: 'fault',
          advice: `Find the program with "ss -ltnp 'sport = :${new URL(url).port}'" and stop it, or set ${variable} to another port.`,
        })
  }
  const named = Object.entries(answer.checks ?? {})
    .filter(([, { status }]) => status !== 'ok')
    .map(([name, { status, found = [] }]) => [`${name} ${status}`, ...found].join(': '))
    .join('; ')
  const advice = 'Check the other findings, and read the log of the service.'
  if (answer.status !== 'ready')
    return wrong(`${url} is not ready: ${named === '' ? 'no reason given' : named}`, {
      severity: 'fault',
      advice,
    })
  return named === '' ? fine(`${url} is ready`) : wrong(`${url} is ready, but degraded: ${named}`, { advice })
}
