import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Sealer } from '../guard/secrets/secrets.ts'

/**
 * Recognizes devices on which a user has signed in before, by a sealed cookie for one account. The cookie does not grant access. A recognized
 * device has its own count of attempts, so that guesses on other devices do not lock the owner out.
 */

export type Device = {
  readonly id: string
  /** The second factor that was last used on the device; null if only the password was used. */
  readonly factorId: string | null
  /** The time up to which the device's user has seen changes to the account; null if none is recorded. */
  readonly seenAtMs: number | null
}

export type Devices = {
  /** Opens a cookie. Returns null if `user` has never signed in on the device. */
  open(sealed: string | null | undefined, user: string): Device | null
  /** Must be called after a complete sign-in. */
  keep(reply: FastifyReply, user: string, device: Omit<Device, 'seenAtMs'>): void
  /** Must be called after the user has changed the account on this device. */
  seen(request: FastifyRequest, reply: FastifyReply, user: string, proved?: Pick<Device, 'factorId'>): void
}

export const deviceCookie = 'dashboard_device'
/** Browsers keep cookies for at most 400 days (RFC 6265bis). Every sign-in renews this one. */
const cookieOptions = {
  path: '/',
  httpOnly: true,
  sameSite: 'strict',
  secure: 'auto',
  maxAge: 400 * 24 * 60 * 60,
} as const

export const newDevice = (): Device => ({ id: randomUUID(), factorId: null, seenAtMs: null })

export const sealedDeviceOf = ({ cookies }: FastifyRequest): string | undefined => cookies[deviceCookie]

export const createDevices = (sealer: Sealer): Devices => {
  const open: Devices['open'] = (sealed, user) => {
    const text = typeof sealed === 'string' ? sealer.open(sealed, user) : null
    if (text === null) return null
    const [id = '', factorId = '', seenAt] = text.split('/')
    return {
      id,
      factorId: factorId === '' ? null : factorId,
      seenAtMs: seenAt === undefined ? null : Number(seenAt),
    }
  }
  const keep: Devices['keep'] = (reply, user, { id, factorId }) => {
    const text = [id, factorId ?? '', Date.now()].join('/')
    reply.setCookie(deviceCookie, sealer.seal(text, user), cookieOptions)
  }
  return {
    open,
    keep,
    seen: (request, reply, user, proved) =>
      keep(reply, user, { ...(open(sealedDeviceOf(request), user) ?? newDevice()), ...proved }),
  }
}
