import type { FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { Sealer } from '../guard/secrets/secrets.ts'
import { nextOf } from './next.ts'

/**
 * Stores between password and code that the password was correct, in a sealed cookie that expires after five minutes. The cookie is not a
 * session, and becomes invalid when the password changes.
 */

export const halfCookie = 'dashboard_half'
const lifetimeMs = 5 * 60 * 1_000
const cookieOptions = { path: '/', httpOnly: true, sameSite: 'lax', secure: 'auto' } as const
const context = 'half signed in'

const half = z.object({
  user: z.string(),
  atMs: z.number(),
  /** Identifies the password that the person entered. */
  mark: z.string(),
  next: z.string(),
  knownDevice: z.boolean(),
  device: z.object({
    id: z.string(),
    factorId: z.string().nullable(),
    seenAtMs: z.number().nullable(),
  }),
  way: z.enum(['password', 'identity_provider']),
})
type Half = z.infer<typeof half>

export type HalfSignedIn = {
  keep(reply: FastifyReply, half: Half): void
  /** Null if the cookie is missing or has expired. */
  of(request: FastifyRequest, nowMs: number): Half | null
  end(reply: FastifyReply): void
}

export const createHalfSignedIn = (sealer: Sealer): HalfSignedIn => ({
  keep: (reply, kept) => {
    reply.setCookie(halfCookie, sealer.seal(JSON.stringify(kept), context), {
      ...cookieOptions,
      maxAge: lifetimeMs / 1_000,
    })
  },
  of: (request, nowMs) => {
    const sealed = request.cookies[halfCookie]
    const text = sealed === undefined ? null : sealer.open(sealed, context)
    if (text === null) return null
    const { data: kept } = half.safeParse(JSON.parse(text))
    // The cookie is from another release, so the person has to start over.
    if (kept === undefined) return null
    const ageMs = nowMs - kept.atMs
    return ageMs >= 0 && ageMs <= lifetimeMs ? { ...kept, next: nextOf(kept.next) } : null
  },
  end: (reply) => {
    reply.clearCookie(halfCookie, { path: '/' })
  },
})
