import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Sealer } from '../guard/secrets.ts'

/**
 * Devices on which a person signed in before. A device keeps a sealed cookie for one account. The cookie opens nothing: it gives the device
 * its own count of attempts, so that guesses made elsewhere do not lock the owner out.
 */

export type Device = {
  readonly id: string
  /** The second factor that was last proved on it. A device that knew only the password does not count as the owner's for codes. */
  readonly factorId: string | null
}

export type Devices = {
  /** Null: no one has signed in to this account on it. `sealed` is the cookie's text. */
  open(sealed: string | null | undefined, user: string): Device | null
  /** After a complete sign-in. */
  keep(reply: FastifyReply, user: string, device: Device): void
}

export const deviceCookie = 'dashboard_device'
/** Browsers keep no cookie longer than 400 days (RFC 6265bis). Every sign-in renews it. */
const cookieOptions = {
  path: '/',
  httpOnly: true,
  sameSite: 'strict',
  secure: 'auto',
  maxAge: 400 * 24 * 60 * 60,
} as const

export const newDevice = (): Device => ({ id: randomUUID(), factorId: null })

export const sealedDeviceOf = ({ cookies }: FastifyRequest): string | undefined => cookies[deviceCookie]

export const createDevices = (sealer: Sealer): Devices => ({
  open: (sealed, user) => {
    const text = typeof sealed === 'string' ? sealer.open(sealed, user) : null
    if (text === null) return null
    const [id = '', factorId = null] = text.split('/')
    return { id, factorId }
  },
  keep: (reply, user, { id, factorId }) => {
    const text = factorId === null ? id : `${id}/${factorId}`
    reply.setCookie(deviceCookie, sealer.seal(text, user), cookieOptions)
  },
})
