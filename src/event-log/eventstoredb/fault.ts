import { redactedUrl } from './client.ts'

const permissionDenied = 7
const unauthenticated = 16

/** Explains in one sentence why EventStoreDB cannot be used, and what to do, based on the error from a call to that server. */
export const eventStoreDbFault = (url: string, error: unknown): string => {
  const server = `EventStoreDB at ${redactedUrl(url).split('?', 1)[0]}`
  const said = causesOf(error)
  const refused = said.find(({ code }) => code === unauthenticated)
  if (refused !== undefined)
    return (
      `${server} refuses the user or the password (${refused.message}). Correct them in the connection string, as in ` +
      'esdb://user:password@host:2113; characters other than letters and digits must be percent-encoded.'
    )
  const denied = said.find(
    ({ code, message }) => code === permissionDenied || message.includes('event_store.client.AccessDenied'),
  )
  if (denied !== undefined)
    return (
      `${server} does not give the user the rights the service needs (${denied.message}). As an administrator, run ` +
      '"event-log prepare --user NAME", or let the user read all events and write streams in $settings.'
    )
  return (
    `${server} cannot be reached (${said.at(-1)?.message ?? 'no reason given'}). Start it, or correct the connection string: ` +
    'the host, the port, tlsCAFile=/path/ca.crt for a CA of your own, and tls=false only for a server without TLS.'
  )
}

type Said = { readonly code: unknown; readonly message: string }

const causesOf = (error: unknown): Said[] => {
  const said: Said[] = []
  for (let at = error; at instanceof Error && said.length < 8; at = at.cause)
    said.push({ code: Reflect.get(at, 'code'), message: at.message.replace(/\s+/g, ' ') })
  return said
}
