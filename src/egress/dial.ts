import { isIPv6, type LookupFunction } from 'node:net'
import { Client, errors } from 'undici'
import type { EgressGuard } from './guard.ts'
import type { ResolveHost } from './hosts.ts'

/**
 * Connects to a web server that a stranger chose. The host is resolved once, the guard checks each address, and connections are made only to
 * allowed addresses. TLS checks the certificate against the name.
 */

/** The reason why there is no answer. `detail` is described at `PageAnswer`. */
export type NoPage = {
  readonly kind: 'refused' | 'timeout' | 'too_large' | 'unreachable' | 'too_many_redirects'
  readonly detail: string
}

export type Dialling = {
  readonly guard: EgressGuard
  readonly resolveHost: ResolveHost
  /** Certificate authorities in PEM that replace the built-in ones. */
  readonly ca?: string
}

/** `signal` aborts together with `deadline`, or earlier if the caller aborts the request. */
type Target = { readonly url: URL; readonly signal: AbortSignal; readonly deadline: AbortSignal }

export const urlLengthMax = 2_048
const connectTimeoutMsDefault = 3_000
const headerBytesMax = 16_384
const addressesDialledMax = 4
/** The wait before the next address is tried. The default of Node.js, 250 ms, is too short for a server on another continent. */
const attemptTimeoutMs = 600

/** Returns the reason why a URL is refused, without checking its host, or null. */
export const refusalOf = (url: URL): string | null => {
  if (url.href.length > urlLengthMax) return 'url'
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return 'scheme'
  return url.username === '' && url.password === '' ? null : 'userinfo'
}

/** Returns the allowed addresses of a host. Only exempt addresses can use a port other than the scheme's default. */
export const addressesToDial = async (
  { url, signal, deadline }: Target,
  { guard, resolveHost }: Dialling,
): Promise<NoPage | { kind: 'addresses'; addresses: readonly string[] }> => {
  const host = url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname
  const { addresses, code } = await resolveHost(host, signal)
  if (signal.aborted) return lateness(deadline)
  if (addresses.length === 0)
    return code === 'ETIMEOUT'
      ? { kind: 'timeout', detail: 'dns' }
      : { kind: 'unreachable', detail: code ?? 'ENOTFOUND' }
  const permitted = addresses.filter((address) => guard.mayDial(address))
  if (permitted.length === 0) return { kind: 'refused', detail: 'address' }
  // In a WHATWG URL, the port is empty if it is the scheme's default.
  const dialled = url.port === '' ? permitted : permitted.filter((address) => guard.exempts(address))
  if (dialled.length === 0) return { kind: 'refused', detail: 'port' }
  return { kind: 'addresses', addresses: dialled.slice(0, addressesDialledMax) }
}

/** Returns a client that connects only to these addresses, even if the host's name resolves to others by then. The caller must destroy it. */
export const clientTo = (
  url: URL,
  {
    addresses,
    connectTimeoutMs,
    ca,
  }: {
    addresses: readonly string[]
    connectTimeoutMs?: number | undefined
    ca?: string | undefined
  },
): Client =>
  new Client(url.origin, {
    connect: {
      lookup: alwaysTo(addresses),
      timeout: connectTimeoutMs ?? connectTimeoutMsDefault,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: attemptTimeoutMs,
      // Set explicitly, so that NODE_TLS_REJECT_UNAUTHORIZED in the environment cannot disable this check.
      rejectUnauthorized: true,
      ...(ca === undefined ? {} : { ca }),
    },
    allowH2: false,
    maxHeaderSize: headerBytesMax,
    // The deadline of the request replaces both timeouts.
    headersTimeout: 0,
    bodyTimeout: 0,
  })

const alwaysTo =
  (addresses: readonly string[]): LookupFunction =>
  (_host, { all }, callback) => {
    const found = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }))
    const [first] = found
    if (all === true || first === undefined) callback(null, found)
    else callback(null, first.address, first.family)
  }

const lateness = (deadline: AbortSignal): NoPage => ({
  kind: 'timeout',
  detail: deadline.aborted ? 'deadline' : 'aborted',
})

/** Converts an error to a reason. Throws only if the request could not be written, which is a bug. Any other error can be caused by the server. */
export const failureToReach = (
  error: unknown,
  { signal, deadline }: Pick<Target, 'signal' | 'deadline'>,
): NoPage => {
  if (signal.aborted) return lateness(deadline)
  if (!(error instanceof Error) || error instanceof errors.InvalidArgumentError) throw error
  if (error instanceof errors.ConnectTimeoutError) return { kind: 'timeout', detail: 'connect' }
  if (error instanceof errors.HeadersOverflowError) return { kind: 'too_large', detail: 'headers' }
  return { kind: 'unreachable', detail: 'code' in error && error.code ? String(error.code) : error.name }
}
