import { z } from 'zod'

/** Refuses paths, queries and fragments, because the service must be at the root of its host. */
const isOrigin = (text: string): boolean =>
  /^https?:\/\//.test(text) && URL.canParse(text) && new URL(text).href === `${new URL(text).origin}/`

/** Whether the host name always refers to this machine. */
export const isLoopbackName = (hostname: string): boolean =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(hostname)

/** An issuer must use TLS, unless it is on this machine. It can have a path. */
const isIssuer = (text: string): boolean => {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return false
  const { protocol, hostname, search, hash, username, password } = new URL(text)
  const bare = search === '' && hash === '' && username === '' && password === ''
  return bare && (protocol === 'https:' || isLoopbackName(hostname))
}

/** A schema for an origin, which removes a trailing slash. `says` describes the expected URL in errors. */
export const publicOrigin = (says: string) =>
  z
    .string()
    .refine(isOrigin, says)
    .transform((text) => new URL(text).origin)

export const providerIssuer = z
  .string()
  .refine(isIssuer, 'the https:// URL of an identity provider; http:// on this machine only')

export const claimName = z
  .string()
  .regex(/^[\x21-\x7e]{1,200}$/, 'a claim such as email or preferred_username')
