import { readFileSync } from 'node:fs'
import { connect as connectTcp, isIP } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { parseConnectionString } from '@eventstore/db-client/dist/Client/parseConnectionString.js'
import { redactedUrl, resolves } from './client.ts'

/**
 * Explains in one sentence why EventStoreDB cannot be used, and what to do. gRPC reports "unavailable" without a reason, both for
 * an untrusted certificate and for a server that is down. To find the reason, the hosts are contacted again without gRPC.
 */

const probeMs = 3_000

const permissionDenied = 7
const unauthenticated = 16

const untrusted = new Set([
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'CERT_UNTRUSTED',
])

/** Explains what is wrong with the server that a connection string names, based on the error from a call to that server. */
export const eventStoreDbFault = async (url: string, error: unknown): Promise<string> => {
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
  const last = said.at(-1)?.message ?? 'no reason given'
  return `${server} ${(await unreachable(url)) ?? `does not answer as an event store should (${last})`}`
}

type Said = { readonly code: unknown; readonly message: string }

const causesOf = (error: unknown): Said[] => {
  const said: Said[] = []
  for (let at = error; at instanceof Error && said.length < 8; at = at.cause)
    said.push({ code: Reflect.get(at, 'code'), message: at.message.replace(/\s+/g, ' ') })
  return said
}

/** Contacts the hosts one after the other. Returns why they cannot be reached; null if one of them accepts the connection. */
const unreachable = async (url: string): Promise<string | null> => {
  const { hosts, tls = true, tlsCAFile } = parseConnectionString(url.trim().replace(/^kurrentdb/, 'esdb'))
  const ca = tls && tlsCAFile !== undefined ? readFileSync(tlsCAFile) : undefined
  const failures: string[] = []
  for (const { address, port } of hosts) {
    const host = address.replace(/^\[(.*)\]$/, '$1')
    const dialled = (await resolves(address))
      ? await dial({ host, port, tls, ...(ca === undefined ? {} : { ca }) })
      : { away: true, why: 'ENOTFOUND' }
    if (dialled === null) {
      if (!tls && (await dial({ host, port, tls: true, anyCertificate: true })) === null)
        return 'uses TLS, but the connection string contains tls=false. Remove that, and name the CA of the server: tlsCAFile=/path/ca.crt'
      return null
    }
    // This host was reached, so its answer is more useful than the failure to reach another host.
    if (!dialled.away) return dialled.why
    failures.push(`${address}:${port} ${dialled.why}`)
  }
  return `cannot be reached (${failures.join(', ')}). Start it, or correct the host and port in the connection string.`
}

type Dial = {
  readonly host: string
  readonly port: number
  readonly tls: boolean
  readonly ca?: Buffer
  readonly anyCertificate?: boolean
}

/**
 * Contacts a host. Resolves with null if the connection and, with `tls`, the TLS handshake succeed. `away`: not even a connection
 * was possible.
 */
const dial = ({
  host,
  port,
  tls,
  ca,
  anyCertificate = false,
}: Dial): Promise<{ away: boolean; why: string } | null> =>
  new Promise((resolve) => {
    let connected = false
    const socket = tls
      ? connectTls({
          host,
          port,
          ...(ca === undefined ? {} : { ca }),
          ...(isIP(host) === 0 ? { servername: host } : {}),
          ALPNProtocols: ['h2'],
          rejectUnauthorized: !anyCertificate,
        })
      : connectTcp({ host, port })
    const settle = (found: { away: boolean; why: string } | null): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(found)
    }
    const timer = setTimeout(() => settle({ away: !connected, why: `no answer in ${probeMs} ms` }), probeMs)
    socket.once('connect', () => {
      connected = true
      if (!tls) settle(null)
    })
    socket.once('secureConnect', () => settle(null))
    socket.once('error', (error: NodeJS.ErrnoException) => {
      const code = error.code ?? error.message
      settle(
        connected ? { away: false, why: certificateFault(code, error.message) } : { away: true, why: code },
      )
    })
    socket.once('close', () => settle({ away: !connected, why: 'the connection was closed' }))
  })

const certificateFault = (code: string, message: string): string => {
  if (untrusted.has(code))
    return `has a certificate that is not trusted (${code}: ${message}). Name the CA that signed it in the connection string: tlsCAFile=/path/ca.crt`
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `has a certificate for another name (${message}). Use a host name that is in the certificate.`
  if (code.startsWith('CERT_'))
    return `has a certificate that is not valid (${code}: ${message}). Renew it, or correct the clock of this machine.`
  return `does not use TLS (${code}). If this is intended, add tls=false to the connection string; no password is sent then.`
}
