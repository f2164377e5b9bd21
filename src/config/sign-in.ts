import { z } from 'zod'

/** What variables hold about where people open the dashboard, and whom it asks who they are. */

/** No path, question or fragment: what answers there answers at the root of its host. */
const isOrigin = (text: string): boolean =>
  /^https?:\/\//.test(text) && URL.canParse(text) && new URL(text).href === `${new URL(text).origin}/`

/** A host of a URL that never leaves this machine. */
export const isLoopbackName = (hostname: string): boolean =>
  /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(hostname)

/** Of a provider of identities: over TLS, unless it is on this machine; its path is part of its name. */
const isIssuer = (text: string): boolean => {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return false
  const { protocol, hostname, search, hash, username, password } = new URL(text)
  const bare = search === '' && hash === '' && username === '' && password === ''
  return bare && (protocol === 'https:' || isLoopbackName(hostname))
}

/** Without the slash at its end. `says` what it is the address of. */
export const publicOrigin = (says: string) =>
  z
    .string()
    .refine(isOrigin, says)
    .transform((text) => new URL(text).origin)

export const providerIssuer = z
  .string()
  .refine(isIssuer, 'the https:// URL of a provider of identities; http:// on this machine only')

export const claimName = z
  .string()
  .regex(/^[\x21-\x7e]{1,200}$/, 'a claim such as email or preferred_username')
