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
 * The trace a partner's request belongs to, by its `traceparent` (W3C Trace Context, Recommendation of 2021, §3.2). It names a
 * call in the partner's own tools, and nothing else: it decides nothing, and its origin is not proved.
 *
 * No `traceresponse` is answered: it is not a Recommendation, and `X-Request-Id` names the call already.
 */
export type TraceContext = {
  /** 32 lower-case hexadecimal digits, not all zero. */
  readonly traceId: string
  /** The partner's span, 16 digits. */
  readonly spanId: string
  /** The partner records the trace. */
  readonly sampled: boolean
}

/** A later version may have more members, after another hyphen. */
const traceparent = /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(?=$|-)/
const length00 = 55
/** No version has that many members, and we read none of them. */
const charsMax = 512

/**
 * Null if there is no `traceparent`, or it does not follow the Recommendation: such a request is answered like one
 * without. Several headers reach us joined by commas, and so count as none.
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
 * Spans of our work, by OpenTelemetry's API: `src/start/run.ts` defines where they go, or the operator brings their own SDK
 * (`node --import`). Without either, a span is an object that does nothing.
 *
 * A span's parent is passed as an argument and never looked up, because tracking asynchronous context would cost time on every call. Names and
 * attributes are our own words, figures, and ids of calls: never an e-mail address, an IP address, a key, or any content of a request.
 */
const tracer = trace.getTracer('enrichment-ledger')

/** Begins the span of a request. It belongs to the partner's trace if the request named one. */
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

/** Ends a span. `attributes` is called only if the span is recorded. */
export const endSpan = (span: Span, attributes: () => Attributes, failed: boolean): void => {
  if (!span.isRecording()) return
  span.setAttributes(attributes())
  // Not the error: its message may quote personal data.
  if (failed) span.setStatus({ code: SpanStatusCode.ERROR })
  span.end()
}

/** Does something within its own span, which ends with it. The result is returned unchanged, a promise or not. */
export const within = <Value>(parent: Span, name: string, work: () => Value): Value => {
  if (!parent.isRecording()) return work()
  const span = tracer.startSpan(name, {}, trace.setSpan(ROOT_CONTEXT, parent))
  return ended(span, work)
}

/** The same for work that no request asked for: a trace of its own. */
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
