import { isIPv6, type LookupFunction } from 'node:net'
import { Client, errors } from 'undici'
import type { EgressGuard } from './guard.ts'
import type { ResolveHost } from './hosts.ts'

/**
 * One connection to a stranger's web server: the host is resolved once, each address is judged by the guard, and the
 * connection is made to the addresses that passed, while TLS checks the certificate against the name.
 */

/** Why there is no answer; `detail` as described in `PageAnswer`. */
export type NoPage = {
  readonly kind: 'refused' | 'timeout' | 'too_large' | 'unreachable' | 'too_many_redirects'
  readonly detail: string
}

export type Dialling = {
  readonly guard: EgressGuard
  readonly resolveHost: ResolveHost
  /** Certificate authorities in PEM to trust instead of the built-in ones. */
  readonly ca?: string
}

/** `deadline` is the reason `signal` aborts, unless the caller aborted it. */
type Target = { readonly url: URL; readonly signal: AbortSignal; readonly deadline: AbortSignal }

export const urlLengthMax = 2_048
const connectTimeoutMsDefault = 3_000
const headerBytesMax = 16_384
const addressesDialledMax = 4
/** Until the next address is dialled. Node's 250 ms give up on another continent's first address. */
const attemptTimeoutMs = 600

/** The fault of a URL, ignoring its host; null for a URL that may be dialled if the guard allows it. */
export const refusalOf = (url: URL): string | null => {
  if (url.href.length > urlLengthMax) return 'url'
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return 'scheme'
  return url.username === '' && url.password === '' ? null : 'userinfo'
}

/** The addresses of the host that may be dialled. Ports other than the scheme's own are for exempt addresses. */
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
  // WHATWG URLs leave the port empty if it is the scheme's own.
  const dialled = url.port === '' ? permitted : permitted.filter((address) => guard.exempts(address))
  if (dialled.length === 0) return { kind: 'refused', detail: 'port' }
  return { kind: 'addresses', addresses: dialled.slice(0, addressesDialledMax) }
}

/** A client that connects to these addresses, even if the host's name resolves to others by then. The caller has to destroy it. */
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
      // Explicit, because NODE_TLS_REJECT_UNAUTHORIZED in the environment must not switch this check off.
      rejectUnauthorized: true,
      ...(ca === undefined ? {} : { ca }),
    },
    allowH2: false,
    maxHeaderSize: headerBytesMax,
    // The deadline covers both.
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

/** Only a request that cannot be written is thrown, because that is a bug here. Servers make parsers fail in unnamed ways. */
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
