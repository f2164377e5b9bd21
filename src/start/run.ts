import { hostname } from 'node:os'
import { join, resolve } from 'node:path'
import { trace } from '@opentelemetry/api'
import type { SpanExporter } from '@opentelemetry/sdk-trace'
import type { Logger } from 'pino'
import service from '../../package.json' with { type: 'json' }
import { anyOrganization, firstSteps, missingSentence, runs } from '../administration/first-steps.ts'
import { type Demo, demoFile, readDemo, seedDemo, writeDemo } from '../administration/seed.ts'
import { passwordIsRight } from '../administration/users/users.ts'
import { within } from '../concurrency/deadline.ts'
import { createOutage } from '../concurrency/outage.ts'
import type { Config } from '../config.ts'
import { curlOf, firstRequest } from '../dashboard/first-call.ts'
import { isLocalDemo } from '../dashboard/given-password.ts'
import { permission } from '../events/capabilities.ts'
import { noteAddresses } from '../foundation/addresses.ts'
import { openingWith } from '../foundation/closing.ts'
import { type Foundation, openFoundation } from '../foundation/foundation.ts'
import { createMetrics } from '../metrics/metrics.ts'
import { type App, startApp } from './app.ts'
import type { Ending } from './ending.ts'

/** Opens the foundation, starts the configured roles, and prints how to try the service. On shutdown, the embedded PostgreSQL is closed last. */
export async function runService(
  config: Config,
  { logger, end }: { readonly logger: Logger; readonly end: Ending },
): Promise<void> {
  // Without its database, the process can neither answer nor write anything, so it exits immediately, as after a crash.
  const onLost = (error: Error) => {
    logger.fatal({ err: error }, 'shutting down, because the embedded PostgreSQL has stopped')
    process.exit(1)
  }
  const metrics = createMetrics({ service })
  const { foundation, app, close } = await openingWith(async (closing) => {
    closing.add(await openTracing(config, logger))
    const opened = await openFoundation(config, { logger, observe: metrics.ledger, onLost })
    closing.add(opened.close)
    const started = await startApp(opened, config, logger, metrics)
    closing.add(started.close)
    return { foundation: opened, app: started, close: closing.close }
  })
  end.started({ logger, reload: app.reload, leave: app.leave, close })
  await announce(foundation, app, config, standardOutput)
}

type Output = { readonly print: (line: string) => void; readonly isTerminal: boolean }

const standardOutput: Output = {
  print: (line) => void process.stdout.write(`${line}\n`),
  isTerminal: process.stdout.isTTY === true,
}

/**
 * Prints that the service is ready and how to try it. With the embedded PostgreSQL, the first start creates a demo organization and stores its
 * key and password in demo.json. It prints them only on a terminal, so that the logs of service managers and containers contain no secret. If
 * there is no user or no organization, prints the commands that create them.
 */
const announce = async (
  foundation: Foundation,
  { apiUrl, dashboardUrl, metricsUrl }: Pick<App, 'apiUrl' | 'dashboardUrl' | 'metricsUrl'>,
  config: Config,
  { print, isTerminal }: Output,
): Promise<void> => {
  if (apiUrl !== null) print(`API        ${apiUrl}`)
  if (dashboardUrl !== null) print(`Dashboard  ${dashboardUrl}`)
  print(`Metrics    ${metricsUrl}/metrics`)
  if (apiUrl === null || dashboardUrl === null) {
    if (apiUrl !== null || dashboardUrl !== null) await announceFirstSteps(foundation, print)
    return
  }
  const urls = { apiUrl, dashboardUrl }
  await noteAddresses(config.DATA_DIR, urls)
  if (!foundation.embedded) return announceFirstSteps(foundation, print)
  const known = await readDemo(config.DATA_DIR)
  const seeded =
    known ??
    ((await anyOrganization(foundation)) ? null : await seedDemo(foundation, { ...urls, actor: 'system' }))
  if (seeded === null) return announceFirstSteps(foundation, print)
  const demo = { ...seeded, api_url: urls.apiUrl, dashboard_url: urls.dashboardUrl }
  await writeDemo(config.DATA_DIR, demo)
  const path = join(config.DATA_DIR, demoFile)
  const printsSecrets = known === null && isTerminal
  print(`Demo       organization ${demo.organization_id}, key and login in ${path}`)
  print(
    `Login      user ${demo.dashboard_user}, ${await passwordText(foundation, demo, { path: printsSecrets ? null : path, isLocal: isLocalDemo(config) })}`,
  )
  const first = firstRequest(urls, permission.options)
  if (first !== undefined) {
    print('\nTry it:\n')
    const key = printsSecrets ? `'x-api-key: ${demo.api_key}'` : `"x-api-key: ${keyFrom(path)}"`
    print(`${curlOf(first, key)}\n`)
  }
  print(`Usage chart: ${dashboardUrl}/organizations/${demo.organization_id}/usage\n`)
  if (printsSecrets)
    print(`The key and password are printed only this once; they are also stored in ${path}.\n`)
}

/** Prints the commands that are needed before anyone can use the service. Prints nothing if they cannot be determined. */
const announceFirstSteps = async (foundation: Foundation, print: (line: string) => void): Promise<void> => {
  const steps = await firstSteps(foundation).catch(() => [])
  if (steps.length === 0) return
  print(`\n${missingSentence(steps)} Run, with the environment variables of the service:\n`)
  for (const { command, note } of steps) print(`${runs.here(command)}    # ${note}`)
  print('\nor, in Docker Compose:\n')
  for (const { command } of steps) print(runs.compose(command))
  print('')
}

/** `path` is the file that contains the password. Null: the password itself is printed. */
const passwordText = async (
  { pool }: Foundation,
  { dashboard_user: name, dashboard_password: password }: Demo,
  { path, isLocal }: { readonly path: string | null; readonly isLocal: boolean },
): Promise<string> => {
  if (!(await passwordIsRight(pool, { name, password })))
    return `whose password was changed; reset it with "user password ${name}"`
  const next = isLocal ? 'you can keep it on this machine' : 'you choose your own when you sign in'
  return path === null ? `password ${password} (${next})` : `password in ${path}; ${next}`
}

const keyFrom = (path: string): string =>
  `$(sed -n 's/.*"api_key": "\\(.*\\)".*/\\1/p' '${resolve(path).replaceAll("'", `'\\''`)}')`

/** The maximum number of unsent spans. Further spans are dropped, because calls must never wait for the collector. */
const spansWaitingMax = 8_192
const spansPerBatchMax = 512
const sendEveryMs = 2_000
/** The time limit for sending one batch, including retries. */
const sendMaxMs = 5_000
/** On shutdown, spans that cannot be sent within this time are dropped. */
const closeMaxMs = 3_000
const attributeCharsMax = 200

type Settings = Pick<
  Config,
  'OTEL_EXPORTER_OTLP_ENDPOINT' | 'OTEL_EXPORTER_OTLP_HEADERS' | 'OTEL_TRACES_SAMPLER_ARG'
>

/**
 * Sends spans to a collector with OTLP over HTTP. Failures are only logged. If no collector is configured, the library is not loaded. Resolves
 * with a function that sends the remaining spans and then stops.
 */
const openTracing = async (settings: Settings, logger: Logger): Promise<() => Promise<void>> => {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = settings
  if (endpoint === undefined) return async () => undefined
  const [
    { BatchSpanProcessor, ParentBasedSampler, TraceIdRatioBasedSampler, TracerProvider },
    { resourceFromAttributes },
  ] = await Promise.all([import('@opentelemetry/sdk-trace'), import('@opentelemetry/resources')])
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      'service.name': service.name,
      'service.version': service.version,
      'service.instance.id': `${hostname()}-${process.pid}`,
    }),
    // If the partner's request says whether its trace is recorded, that also applies to our spans.
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(settings.OTEL_TRACES_SAMPLER_ARG) }),
    spanLimits: { attributeValueLengthLimit: attributeCharsMax },
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: await exporterTo(endpoint, settings, logger),
        maxQueueSize: spansWaitingMax,
        maxExportBatchSize: spansPerBatchMax,
        scheduledDelayMillis: sendEveryMs,
        exportTimeoutMillis: sendMaxMs,
      }),
    ],
  })
  if (!trace.setGlobalTracerProvider(provider))
    logger.warn(
      'tracing: OTEL_EXPORTER_OTLP_ENDPOINT is ignored, because another OpenTelemetry SDK was loaded first',
    )
  return () =>
    within(
      provider.shutdown().catch(() => undefined),
      { waitMs: closeMaxMs },
      () => undefined,
    )
}

/** The OpenTelemetry specification requires percent-encoded values in this variable. */
const headerOf = (part: string): [name: string, value: string] => {
  const at = part.indexOf('=')
  const value = part.slice(at + 1)
  try {
    return [part.slice(0, at), decodeURIComponent(value)]
  } catch {
    return [part.slice(0, at), value]
  }
}

const exporterTo = async (
  endpoint: string,
  { OTEL_EXPORTER_OTLP_HEADERS: headers }: Settings,
  logger: Logger,
): Promise<SpanExporter> => {
  const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http')
  const outage = createOutage({ logger, what: 'tracing: sending spans' })
  const exporter = new OTLPTraceExporter({
    url: new URL('v1/traces', endpoint.endsWith('/') ? endpoint : `${endpoint}/`).href,
    headers: Object.fromEntries((headers ?? '').split(',').filter(Boolean).map(headerOf)),
    timeoutMillis: sendMaxMs,
    concurrencyLimit: 1,
  })
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        if (result.code === 0) outage.works()
        else outage.failed(result.error ?? new Error('the collector did not accept the spans'))
        done(result)
      }),
    shutdown: () => exporter.shutdown(),
  }
}
