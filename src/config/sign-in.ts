import { z } from 'zod'

/** Variables about the dashboard's address and the identity provider. */

/** No path, query or fragment: the server must be at the root of its host. */
const isOrigin = (text: string): boolean =>
  /^https?:\/\//.test(text) && URL.canParse(text) && new URL(text).href === `${new URL(text).origin}/`

/** A host of a URL that never leaves this machine. */
export const isLoopbackName = (hostname: string): boolean =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(hostname)

/** The URL of an identity provider: over TLS, unless it is on this machine. Its path is part of its name. */
const isIssuer = (text: string): boolean => {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return false
  const { protocol, hostname, search, hash, username, password } = new URL(text)
  const bare = search === '' && hash === '' && username === '' && password === ''
  return bare && (protocol === 'https:' || isLoopbackName(hostname))
}

/** Without a trailing slash. `says` names the addressed server. */
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
