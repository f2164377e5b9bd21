import { hostname } from 'node:os'
import { trace } from '@opentelemetry/api'
import type { SpanExporter } from '@opentelemetry/sdk-trace'
import type { Logger } from 'pino'
import service from '../../package.json' with { type: 'json' }
import { within } from '../concurrency/deadline.ts'
import type { Config } from '../config.ts'
import { createOutage } from '../event-log/outage.ts'

/** Spans that wait to be sent. What comes beyond them is dropped: calls never wait for whoever reads traces. */
const spansWaitingMax = 8_192
const spansPerBatchMax = 512
const sendEveryMs = 2_000
/** Of one batch, repetitions included. */
const sendMaxMs = 5_000
/** What is left at the end is sent in this time, or dropped. */
const closeMaxMs = 3_000
const attributeCharsMax = 200

type Settings = Pick<
  Config,
  'OTEL_EXPORTER_OTLP_ENDPOINT' | 'OTEL_EXPORTER_OTLP_HEADERS' | 'OTEL_TRACES_SAMPLER_ARG'
>

/**
 * Sends spans to a collector by OTLP over HTTP, where one is configured; its library is not even loaded elsewhere. A collector that is
 * away is logged, and nothing waits for it. Resolves with what sends the rest and ends it.
 */
export const openTracing = async (settings: Settings, logger: Logger): Promise<() => Promise<void>> => {
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
    // A partner who records its trace, or does not, has decided for our part of it.
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
      'tracing: OTEL_EXPORTER_OTLP_ENDPOINT is not used, because another SDK of OpenTelemetry was loaded first',
    )
  return () =>
    within(
      provider.shutdown().catch(() => undefined),
      { waitMs: closeMaxMs },
      () => undefined,
    )
}

/** Values are percent-encoded, by OpenTelemetry's specification of the variable. */
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
        else outage.failed(result.error ?? new Error('the collector did not take them'))
        done(result)
      }),
    shutdown: () => exporter.shutdown(),
  }
}
