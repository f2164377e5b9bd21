import { z } from 'zod'

/** Refuses paths, queries and fragments, because the server must be at the root of its host. */
const isOrigin = (text: string): boolean =>
  /^https?:\/\//.test(text) && URL.canParse(text) && new URL(text).href === `${new URL(text).origin}/`

/** Whether a URL's host always means this machine. */
export const isLoopbackName = (hostname: string): boolean =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(hostname)

/** The issuer must use TLS, unless it is on this machine. Its path is part of its name. */
const isIssuer = (text: string): boolean => {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return false
  const { protocol, hostname, search, hash, username, password } = new URL(text)
  const bare = search === '' && hash === '' && username === '' && password === ''
  return bare && (protocol === 'https:' || isLoopbackName(hostname))
}

/** A schema for an origin, which returns it without a trailing slash. `says` describes the expected URL in errors. */
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
