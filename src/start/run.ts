import { hostname } from 'node:os'
import { trace } from '@opentelemetry/api'
import type { SpanExporter } from '@opentelemetry/sdk-trace'
import type { Logger } from 'pino'
import service from '../../package.json' with { type: 'json' }
import { within } from '../concurrency/deadline.ts'
import { createOutage } from '../concurrency/outage.ts'
import type { Config } from '../config.ts'
import { openingWith } from '../foundation/closing.ts'
import { openFoundation } from '../foundation/foundation.ts'
import { createMetrics } from '../metrics/metrics.ts'
import { announce } from './announce.ts'
import { startApp } from './app.ts'
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
  await announce(foundation, app, config)
}

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
