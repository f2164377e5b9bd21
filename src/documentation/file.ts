import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** A file that is read only once. All answers share its bytes, so slow clients need no additional memory. */
export type ServedFile = { readonly type: string; readonly body: Buffer; readonly digest: string }

export const servedFile = (type: string, body: Buffer): ServedFile => ({
  type,
  body,
  digest: createHash('sha256').update(body).digest('hex').slice(0, 12),
})

/** Sends a file, or status 304 to a client that already has it. */
export const sendFile = (
  request: FastifyRequest,
  reply: FastifyReply,
  { type, body, digest }: ServedFile,
): FastifyReply => {
  const tag = `"${digest}"`
  reply.header('etag', tag)
  return hasTag(request.headers['if-none-match'], tag) ? reply.code(304).send() : reply.type(type).send(body)
}

/** Whether a header contains a tag. Uses weak comparison (RFC 9110 §13.1.2). */
const hasTag = (header: string | undefined, tag: string): boolean =>
  (header?.split(',') ?? []).some((one) => one.trim() === '*' || one.trim().replace(/^W\//, '') === tag)
