import { randomUUID, X509Certificate } from 'node:crypto'
import pino from 'pino'
import { Agent, fetch, type Headers } from 'undici'
import packaged from '../../package.json' with { type: 'json' }
import { clockCheck } from '../administration/doctor/clocks.ts'
import { connect, databaseChecks, type OpenDatabase } from '../administration/doctor/database.ts'
import { diskChecks, growthCheck } from '../administration/doctor/disk.ts'
import { environmentChecks } from '../administration/doctor/environment.ts'
import { projectionsCheck, reachEventLog } from '../administration/doctor/event-log.ts'
import {
  type Check,
  durationText,
  type Finding,
  fault,
  lookAt,
  ok,
  reasonOf,
  type Told,
  warning,
} from '../administration/doctor/finding.ts'
import { jobsCheck } from '../administration/doctor/jobs.ts'
import {
  keyChecks,
  keyDirChecks,
  newestOfCheckpoints,
  signingKeyCheck,
} from '../administration/doctor/keys.ts'
import { type Listener, type Listening, networkChecks, reachedAt } from '../administration/doctor/network.ts'
import { proofChecks, webhooksCheck } from '../administration/doctor/proofs.ts'
import { capabilities } from '../capabilities/index.ts'
import { within } from '../concurrency/deadline.ts'
import type { Config } from '../config.ts'
import type { EventLog } from '../event-log/port.ts'
import { openNamed } from '../foundation/open-event-log.ts'
import { liveProcesses } from '../foundation/processes.ts'
import { knownSecretKeysOf } from '../foundation/secret-key.ts'
import { parseSoundConfig } from '../foundation/sound-config.ts'
import { proofHeader, proofOf, questionHeader } from '../guard/installation-key.ts'
import { sameHmac } from '../guard/secrets.ts'
import { defaultMetricsPort } from '../metrics/host.ts'
import { addressesNow } from './addresses.ts'
import { apartIn } from './apart.ts'
import { checkSurroundings } from './preflight.ts'
import { providerCheck } from './provider.ts'
import { readTls } from './tls.ts'

/**
 * Everything that can be looked at of an installation, whether it runs or not. Nothing is written, nothing is started, and
 * each thing is looked at for itself: what is away hides nothing else.
 */

const closeMaxMs = 1_000
const silent = pino({ level: 'silent' })

/** What was found, in the order in which a person should read it. Never rejects. */
export const examine = async (
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Finding[]> => {
  const { config, faults } = parseSoundConfig(environment)
  const outside = lookAt([
    ...environmentChecks(environment, {
      config,
      faults: [...faults.values()],
      nodeRange: packaged.engines.node,
    }),
    { about: 'surroundings', look: () => surroundings(config) },
    { about: 'TLS', look: () => tls(config) },
    { about: 'service', look: () => service(config) },
    ...networkChecks(config, placesOf(config), (place) => whoseAt(config, place)),
    providerCheck(config),
    ...diskChecks(config),
    ...keyDirChecks(config),
    ...capabilities.flatMap(({ checks }) => checks?.(config) ?? []),
  ])
  const inside = faults.has('DATABASE_URL') || faults.has('EVENT_LOG_URL') ? notLookedAt() : stores(config)
  return [...(await outside), ...(await inside)]
}

const notLookedAt = async (): Promise<Finding[]> => [
  {
    about: 'database',
    ...warning(
      'it was not looked at, for its address makes no sense',
      'Set DATABASE_URL and EVENT_LOG_URL right, and ask again.',
    ),
  },
]

/** The database first: where it is away, one line says so in place of all that would fail for it. */
const stores = async (config: Config): Promise<Finding[]> => {
  const about = 'database'
  const connected = await connect(config).catch((error: unknown) => ({
    told: fault(reasonOf(error), 'Run as the user that runs the service.'),
    database: null,
  }))
  const first = { about, ...connected.told }
  if (connected.database !== null) return [first, ...(await storesIn(config, connected.database))]
  return first.level === 'ok' ? [first] : [first, { about, ...withoutDatabase }]
}

const withoutDatabase = warning(
  'not looked at without it: migrations, event log, projections, keys in use, jobs, checkpoints, verification, reconciliation, backup, webhooks, clocks, growth',
  'Ask again when the database answers.',
)

const storesIn = async (config: Config, database: OpenDatabase): Promise<Finding[]> => {
  const { url, pool } = database
  const named = {
    variable: 'EVENT_LOG_URL',
    url: config.EVENT_LOG_URL ?? url,
    prefix: config.EVENT_LOG_PREFIX,
  }
  const eventLog = await openNamed(named, silent).catch((error: unknown) =>
    fault(reasonOf(error), 'Set EVENT_LOG_URL right.'),
  )
  if (!('close' in eventLog)) return [{ about: 'event log', ...eventLog }]
  const logged = { config, pool, eventLog }
  try {
    const reached = await reachEventLog(logged)
    const log = { about: 'event log', ...reached.told }
    const rest = await lookAt([
      ...databaseChecks(database),
      ...(reached.answers ? [...keyChecks(logged), ...checksOfLog(logged)] : []),
      clockCheck(pool, () => liveProcesses(pool)),
      jobsCheck(pool),
      webhooksCheck(pool),
      { about: 'processes', look: () => processes(pool) },
    ])
    return [log, ...(reached.answers ? [] : [{ about: 'event log', ...withoutEventLog }]), ...rest]
  } finally {
    const closed = Promise.allSettled([eventLog.close(), database.close()])
    await within(closed, { waitMs: closeMaxMs }, () => undefined)
  }
}

const withoutEventLog = warning(
  'not looked at without it: projections, SECRET_KEY, epoch keys, signing key, checkpoints, verification, reconciliation, backup, growth',
  'Ask again when the event log answers.',
)

const checksOfLog = (logged: {
  readonly config: Config
  readonly pool: OpenDatabase['pool']
  readonly eventLog: EventLog
}): readonly Check[] => [
  projectionsCheck(logged),
  signingKeyCheck(logged),
  ...proofChecks({
    eventLog: logged.eventLog,
    checkpoint: async () => (await newestOfCheckpoints(logged.eventLog)).checkpoint,
  }),
  growthCheck(logged),
]

/** What a start would refuse for. */
const surroundings = async (config: Config): Promise<Told> => {
  try {
    await checkSurroundings(config)
    return ok('addresses, certificates and location files that are named are there')
  } catch (error) {
    return fault(reasonOf(error), 'Set the variable right: the service does not start with it.')
  }
}

const dayMs = 86_400_000
const certificateDaysMin = 14

const tls = async (config: Config): Promise<Told | Told[]> => {
  // One that cannot be read is told with the surroundings.
  const files = await readTls(config).catch(() => null)
  if (files === null) return []
  const { validFrom, validTo, subject } = new X509Certificate(files.cert)
  const leftMs = Date.parse(validTo) - Date.now()
  const remedy =
    'Renew it and replace the files of TLS_CERT and TLS_KEY by renaming: they are served within a minute.'
  const whose = subject.replaceAll('\n', ', ')
  if (leftMs <= 0) return fault(`the certificate of ${whose} expired ${durationText(leftMs)} ago`, remedy)
  if (Date.parse(validFrom) > Date.now())
    return fault(`the certificate of ${whose} is valid from ${validFrom} on, and not yet`, remedy)
  const says = `the certificate of ${whose} expires in ${durationText(leftMs)}`
  return leftMs < certificateDaysMin * dayMs ? warning(says, remedy) : ok(says)
}

const answerMaxMs = 3_000

/** A certificate is for the name that partners use, and this host asks itself by its address. */
const own = new Agent({ connect: { rejectUnauthorized: false } })

type AnswerOfService = { status: number; headers: Headers; body: Record<string, unknown> }

const answerOf = async (url: string, headers: Record<string, string> = {}): Promise<AnswerOfService> => {
  const response = await fetch(url, { dispatcher: own, headers, signal: AbortSignal.timeout(answerMaxMs) })
  return { status: response.status, headers: response.headers, body: Object(await response.json()) }
}

/** What the service says of itself, where one is known to listen. */
const service = async (config: Config): Promise<Told | Told[]> => {
  const { apiUrl, dashboardUrl } = await addressesNow(config)
  const { METRICS_HOST: host, METRICS_PORT: port = defaultMetricsPort } = config
  const urls = [
    ...(config.ROLES.includes('api') ? [apiUrl] : []),
    ...(config.ROLES.includes('dashboard') ? [dashboardUrl] : []),
  ]
  return (
    await Promise.all((urls.length > 0 ? urls : [`http://${hostText(host)}:${port}`]).map(readinessAt))
  ).flat()
}

const hostText = (host: string): string => {
  const at = reachedAt(host)
  return at.includes(':') ? `[${at}]` : at
}

const readinessAt = async (url: string): Promise<Told[]> => {
  try {
    const answer = await answerOf(`${url}/readyz`)
    const { status, checks = {} } = answer.body as {
      status?: string
      checks?: Record<string, { status: string; detail?: string }>
    }
    const wrong = Object.entries(checks).filter(([, check]) => check.status !== 'ok')
    const named = wrong
      .map(([name, { status: is, detail }]) => `${name} ${is}${detail === undefined ? '' : ` (${detail})`}`)
      .join(', ')
    if (status === 'ready')
      return [
        wrong.length === 0
          ? ok(`${url} is ready`)
          : warning(`${url} is ready, with less: ${named}`, 'See the other lines.'),
      ]
    return [
      fault(
        `${url} is not ready: ${named === '' ? `it answered ${answer.status}` : named}`,
        'See the other lines, and its log.',
      ),
    ]
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
    return [
      warning(
        `${url} does not answer: ${reasonOf(cause)}`,
        'Where a service is to run here, start it: npm start. Elsewhere, ask there.',
      ),
    ]
  }
}

const placesOf = ({ ROLES, HOST, METRICS_HOST, ...ports }: Config): Listening[] => [
  ...(ROLES.includes('api') ? [{ variable: 'API_PORT', host: HOST, port: ports.API_PORT } as const] : []),
  ...(ROLES.includes('dashboard')
    ? [{ variable: 'DASHBOARD_PORT', host: HOST, port: ports.DASHBOARD_PORT } as const]
    : []),
  // Without a port of its own it takes any free one where the default is taken.
  ...(ports.METRICS_PORT === undefined
    ? []
    : [{ variable: 'METRICS_PORT', host: METRICS_HOST, port: ports.METRICS_PORT } as const]),
]

/**
 * Whose process answers there: every host of the service says that it lives, and what its SECRET_KEY makes of a question. Of an
 * installation without a key none runs.
 */
const whoseAt = async (config: Config, { host, port }: Listening): Promise<Listener> => {
  const known = await knownSecretKeysOf(config).catch(() => null)
  const keys = known ?? []
  const question = randomUUID()
  const asked = await Promise.all(
    ['http', 'https'].map((scheme) =>
      answerOf(`${scheme}://${hostText(host)}:${port}/livez`, { [questionHeader]: question }).then(
        ({ body, headers }): Listener => {
          if (body.status !== 'live') return 'stranger'
          const proof = headers.get(proofHeader) ?? ''
          return keys.some((key) => sameHmac(proof, proofOf(key, question) ?? '')) ? 'own' : 'another'
        },
        (): Listener => 'stranger',
      ),
    ),
  )
  return asked.find((one) => one !== 'stranger') ?? 'stranger'
}

const processes = async (pool: OpenDatabase['pool']): Promise<Told> => {
  const live = await liveProcesses(pool)
  const apart = apartIn(live)
  if (apart !== null) return warning(`rate limits: ${apart}`, 'Set REDIS_URL to one Redis for all of them.')
  return live.length === 0
    ? warning(
        'no api process lives, by the table in the database',
        'Where calls are to be answered, start one: npm start.',
      )
    : ok(`${live.length} api ${live.length === 1 ? 'process lives' : 'processes live'}`)
}
