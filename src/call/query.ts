import type { FastifyRequest } from 'fastify'
import type { JsonObject } from './form.ts'

/** A request's query, each parameter as text; one that comes twice is a list, and so of the wrong type. */
export const queryOf = (request: FastifyRequest): JsonObject => ({ ...(request.query as JsonObject) })

/** RFC 9112 §6: whether a request has a body, be it empty. */
export const hasBody = ({ headers }: FastifyRequest): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
