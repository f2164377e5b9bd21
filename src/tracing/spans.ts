import {
  type Attributes,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api'

/**
 * The trace of a partner's request, from its `traceparent` (W3C Trace Context, Recommendation of 2021, §3.2). It only helps the partner to find the
 * call in other tools. No decision depends on it, because its origin is not verified.
 *
 * Answers do not contain `traceresponse`, which is not a Recommendation. `X-Request-Id` already identifies the call.
 */
export type TraceContext = {
  /** 32 lower-case hexadecimal digits, not all zero. */
  readonly traceId: string
  /** The partner's span, 16 hexadecimal digits. */
  readonly spanId: string
  /** Whether the partner records the trace. */
  readonly sampled: boolean
}

/** Later versions can have additional members after another hyphen. */
const traceparent = /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(?=$|-)/
const length00 = 55
/** The maximum length of the header, which is far longer than the header of any version. */
const charsMax = 512

/**
 * Returns null if there is no valid `traceparent`. If the header is sent several times, Node.js joins the values with commas, so they are not
 * valid.
 */
export const traceContextOf = (header: string | readonly string[] | undefined): TraceContext | null => {
  if (typeof header !== 'string' || header.length > charsMax) return null
  const found = traceparent.exec(header)
  if (found === null) return null
  const [, version, traceId = '', spanId = '', flags = ''] = found
  if (version === '00' && header.length !== length00) return null
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 }
}

/**
 * The spans of this service, created with OpenTelemetry's API. `src/start/run.ts` configures their export, or the operator loads an SDK (`node
 * --import`). Without either, spans have no effect.
 *
 * The parent of a span is an argument, because tracking the asynchronous context would take time on every call. Names and attributes contain only
 * fixed words, numbers and call ids, but never an e-mail address, an IP address, a key, or other content of a request.
 */
const tracer = trace.getTracer('enrichment-ledger')

/** Starts the span of a request, in the partner's trace if there is one. */
export const startRequestSpan = (name: string, partner: TraceContext | null): Span =>
  tracer.startSpan(
    name,
    { kind: SpanKind.SERVER },
    partner === null
      ? ROOT_CONTEXT
      : trace.setSpanContext(ROOT_CONTEXT, {
          traceId: partner.traceId,
          spanId: partner.spanId,
          traceFlags: partner.sampled ? TraceFlags.SAMPLED : TraceFlags.NONE,
          isRemote: true,
        }),
  )

/** Ends a span. Calls `attributes` only if the span is recorded. */
export const endSpan = (span: Span, attributes: () => Attributes, failed: boolean): void => {
  if (!span.isRecording()) return
  span.setAttributes(attributes())
  // The error is not added, because its message can quote personal data.
  if (failed) span.setStatus({ code: SpanStatusCode.ERROR })
  span.end()
}

/** Runs `work` in a child span, and returns its result unchanged. If the result is a promise, the span ends when it settles. */
export const within = <Value>(parent: Span, name: string, work: () => Value): Value => {
  if (!parent.isRecording()) return work()
  const span = tracer.startSpan(name, {}, trace.setSpan(ROOT_CONTEXT, parent))
  return ended(span, work)
}

/** Like `within`, for work without a request. The span starts its own trace. */
export const alone = <Value>(name: string, attributes: () => Attributes, work: () => Value): Value => {
  const span = tracer.startSpan(name, {}, ROOT_CONTEXT)
  if (!span.isRecording()) return work()
  span.setAttributes(attributes())
  return ended(span, work)
}

const ended = <Value>(span: Span, work: () => Value): Value => {
  const end = (failed: boolean): void => endSpan(span, () => ({}), failed)
  try {
    const done = work()
    if (done instanceof Promise)
      done.then(
        () => end(false),
        () => end(true),
      )
    else end(false)
    return done
  } catch (error) {
    end(true)
    throw error
  }
}
