import {
  type Attributes,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api'
import type { TraceContext } from './trace-context.ts'

/**
 * Spans of what is done, by OpenTelemetry's API: `src/start/run.ts` says where they go, or whoever runs the service brings an SDK of
 * their own (`node --import`). Where neither is, a span is an object that does nothing.
 *
 * A span's parent is handed down and never looked up: what follows asynchronous work around would cost every call. Names and
 * attributes are words of ours, figures, and ids of calls: never an e-mail address, an IP address, a key, or anything a request said.
 */
const tracer = trace.getTracer('enrichment-ledger')

/** Begins the span of a request. It belongs to the partner's trace where the request named one. */
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

/** Ends a span. `attributes` is asked only where somebody records it. */
export const endSpan = (span: Span, attributes: () => Attributes, failed: boolean): void => {
  if (!span.isRecording()) return
  span.setAttributes(attributes())
  // Not the error: its message may quote what it is about.
  if (failed) span.setStatus({ code: SpanStatusCode.ERROR })
  span.end()
}

/** Does something within a span of its own, which ends with it; what it gives is passed on as it is, a promise or not. */
export const within = <Value>(parent: Span, name: string, work: () => Value): Value => {
  if (!parent.isRecording()) return work()
  const span = tracer.startSpan(name, {}, trace.setSpan(ROOT_CONTEXT, parent))
  return ended(span, work)
}

/** The same of work that no request asked for: a trace of its own. */
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
