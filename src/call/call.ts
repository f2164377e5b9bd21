import type { Span } from '@opentelemetry/api'
import type { FastifyRequest } from 'fastify'
import type { DirectoryKey } from '../guard/key-directory.ts'
import type { RateVerdict } from '../guard/limits/rate-limit.ts'
import type { TraceContext } from '../tracing/spans.ts'
import type { AnyCapabilityForm } from './form.ts'

/** `startedMs` is a time from `performance.now()`; `atMs` is Unix time. */
export type Call = {
  readonly form: AnyCapabilityForm
  readonly request: FastifyRequest
  readonly requestId: string
  readonly atMs: number
  readonly startedMs: number
  /** The trace of the partner's request; null if the request names no trace. */
  readonly trace: TraceContext | null
  readonly span: Span
}

/** A call whose key is known, permitted and within its rate limits. */
export type AdmittedCall = Call & { readonly key: DirectoryKey; readonly verdict: RateVerdict }
