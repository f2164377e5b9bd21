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
