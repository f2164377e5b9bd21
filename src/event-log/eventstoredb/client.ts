import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { EventStoreDBClient } from '@eventstore/db-client'
import type { StreamsClient } from '@eventstore/db-client/generated/streams_grpc_pb.js'
import streamsGrpc from '@eventstore/db-client/generated/streams_grpc_pb.js'
import type {
  BatchAppendReq,
  BatchAppendResp,
  ReadReq,
  ReadResp,
} from '@eventstore/db-client/generated/streams_pb.js'
import type { CallOptions, Client, ClientDuplexStream, ClientReadableStream, Metadata } from '@grpc/grpc-js'
import { within } from '../../concurrency/deadline.ts'
import { Unavailable } from '../port.ts'

/**
 * One connection to EventStoreDB. The client package handles the connection string, discovery, TLS and credentials.
 *
 * The package's `appendToStream`, `readStream` and `subscribeToAll` are not used. They parse and rewrite JSON, so bytes change. If one
 * client's stream breaks, another client's appends can be rejected. A late reply can crash the process. The deadline of an append is ignored.
 * If reading the server's features fails once, it is never tried again. This file calls the server's services directly instead, through the
 * stubs that the package contains.
 */

export type AppendCall = ClientDuplexStream<BatchAppendReq, BatchAppendResp>
export type ReadCall = ClientReadableStream<ReadResp>

export type Connection = {
  batchAppend(): AppendCall
  read(request: ReadReq): ReadCall
  /** Cancels every call and releases the sockets, which close within seconds. */
  close(): void
}

/** Private and protected members of the package. They can change in any release, so the package's version is pinned. */
type Internals = {
  readonly getGRPCClient: <Stub extends Client>(stub: StubOf<Stub>, name: string) => Promise<Stub>
  readonly callArguments: (
    options: { requiresLeader: boolean },
    call: { deadline: number },
  ) => [Metadata, CallOptions]
}

type StubOf<Stub> = new (...args: never) => Stub

const internalsOf = (client: EventStoreDBClient): Internals => ({
  getGRPCClient: Reflect.get(client, 'getGRPCClient'),
  callArguments: Reflect.get(client, 'callArguments'),
})

const messagesAheadMax = 4

/** The connection states of @grpc/grpc-js, which cannot be imported, because only the client package depends on it. */
const ready = 2
const transientFailure = 3
const shutdown = 4

/**
 * All options that the client knows. For an unknown option, the client would print the whole connection string, including the password.
 */
const knownOptions = new Set([
  'usercertfile',
  'userkeyfile',
  'maxdiscoverattempts',
  'connectionname',
  'defaultdeadline',
  'discoveryinterval',
  'gossiptimeout',
  'nodepreference',
  'tls',
  'tlscafile',
  'keepaliveinterval',
  'keepalivetimeout',
])

/** The connection string without its user and password, for logs and errors. */
export const redactedUrl = (url: string): string => url.trim().replace(/^([^:/]*:\/\/).*@/, '$1***@')

/** Throws an Error that describes the fault of an invalid connection string, without any of its secrets. */
export const checkUrl = (url: string): void => {
  if (/^[^:/]*\+discover:\/\/[^?]*,/.test(url))
    throw new Error(
      "the event store's connection string has +discover and several hosts, of which only the first would be used. Remove +discover, as in esdb://user:password@a:2113,b:2113?tls=true",
    )
  const options = url.includes('?') ? url.slice(url.indexOf('?') + 1) : ''
  for (const option of options === '' ? [] : options.split('&')) {
    const [name = '', value = ''] = option.split('=', 2)
    const flat = name.toLowerCase().replace(/[_-]/g, '')
    // If there is an @ after the question mark, this text can be part of an unencoded password.
    const shown = options.includes('@') ? '' : `: ${name}`
    if (!knownOptions.has(flat))
      throw new Error(
        `the event store's connection string has an option that this service does not support${shown}`,
      )
    if (flat === 'nodepreference' && value.toLowerCase() !== 'leader')
      throw new Error(
        "the event store's connection string must not prefer followers, because every call must go to the leader",
      )
  }
  create(url, 'check')
}

/** Whether a connection string contains credentials that the client would silently ignore. */
export const dropsCredentials = (url: string): boolean =>
  redactedUrl(url) !== url.trim() && /[?&]tls=false/i.test(url)

let connections = 0
const keepAliveTimeoutMs = 10_000
/** About 23 days, instead of "never". With "never", all connections would share one socket. */
const keepAliveTimeoutMaxMs = 2_000_000_000
/**
 * How long each of several hosts can take to report the leader. With the client's default of five seconds, a single host that does not
 * answer would use up the whole time for connecting.
 */
const gossipTimeoutSeconds = 1
const keepAliveTimeoutOption = /([?&]keep[-_]?alive[-_]?timeout=)(-?\d+)/i

/**
 * Makes the options of every connection unique. Otherwise, the connections of a process would share one socket, so that a new client could
 * get a broken socket, and a subscription that is not read could block appends.
 */
const unshared = (url: string, role: string): string => {
  const serial = connections++ % 100_000
  let trimmed = url.trim()
  while (trimmed.endsWith('/')) trimmed = trimmed.slice(0, -1)
  const given = keepAliveTimeoutOption.exec(trimmed)
  const timeout = given === null ? keepAliveTimeoutMs : Number(given[2])
  const own = (timeout < 0 ? keepAliveTimeoutMaxMs : timeout) + serial
  const withTimeout =
    given === null
      ? `${trimmed}${trimmed.includes('?') ? '&' : '?'}keepAliveTimeout=${own}`
      : trimmed.replace(keepAliveTimeoutOption, `$1${own}`)
  const hosts = redactedUrl(trimmed).split('?', 1)[0] ?? ''
  const defaults = [
    ...(hosts.includes(',') && !/[?&]gossip[-_]?timeout=/i.test(trimmed)
      ? [`gossipTimeout=${gossipTimeoutSeconds}`]
      : []),
    ...(/[?&]connection[-_]?name=/i.test(trimmed) ? [] : [`connectionName=event-log-${role}`]),
  ]
  return [withTimeout, ...defaults].join('&')
}

const lookupWaitMs = 500
const lookups = new Map<string, Promise<boolean>>()

/**
 * Whether a host name resolves within half a second; true for an address. There is at most one look-up of a name at a time. A look-up
 * without an answer blocks one of Node's four threads for ten seconds, so several look-ups of a removed node could block all of them.
 */
const resolves = async (host: string): Promise<boolean> => {
  if (isIP(host.replace(/^\[|\]$/g, '')) !== 0) return true
  const pending =
    lookups.get(host) ??
    lookup(host)
      .then(
        () => true,
        () => false,
      )
      .finally(() => lookups.delete(host))
  lookups.set(host, pending)
  return within(pending, { waitMs: lookupWaitMs }, () => false)
}

/**
 * The connection string without the hosts whose names currently do not resolve, or unchanged if no name resolves. A single remaining host
 * is listed twice, because it can be a follower, and the client looks for the leader only if there are several hosts.
 */
export const withResolvedHosts = async (url: string): Promise<string> => {
  const begin = Math.max(url.lastIndexOf('@') + 1, url.indexOf('://') + 3)
  const [hosts = ''] = url.slice(begin).split(/[/?]/, 1)
  const named = hosts.split(',')
  if (named.length === 1) return url
  const resolved = await Promise.all(named.map((host) => resolves(host.replace(/:\d+$/, ''))))
  const kept = named.filter((_, n) => resolved[n])
  if (kept.length === 0) return url
  const asked = kept.length === 1 ? [...kept, ...kept] : kept
  return url.slice(0, begin) + asked.join(',') + url.slice(begin + hosts.length)
}

const create = (url: string, role: string): EventStoreDBClient => {
  try {
    return EventStoreDBClient.connectionString(unshared(url, role))
  } catch {
    // The client's own error is not used, because it quotes the whole connection string.
    throw new Error(
      `the event store's connection string ${redactedUrl(url)} cannot be used. Check its host, port and options`,
    )
  }
}

export type ConnectOptions = {
  readonly url: string
  readonly role: 'append' | 'read' | 'subscribe' | 'users'
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** Connects, or throws `Unavailable`. No request can be sent before this resolves. */
export const connect = async (options: ConnectOptions): Promise<Connection> => {
  const { stub, callOptions } = await connectTo(streamsGrpc.StreamsClient, options)
  return connectionOf(stub, () => callOptions(Number.POSITIVE_INFINITY))
}

/** Like `connect`, but returns a stub for one of the server's services. */
export const connectTo = async <Stub extends Client>(
  service: StubOf<Stub>,
  { url, role, timeoutMs, signal }: ConnectOptions,
): Promise<{ stub: Stub; callOptions: (deadline: number) => [Metadata, CallOptions] }> => {
  const deadline = performance.now() + timeoutMs
  const { getGRPCClient, callArguments } = internalsOf(create(await withResolvedHosts(url), role))
  const opening = getGRPCClient(service, role)
  const giveUp = (): void => {
    opening.then(
      (late) => late.close(),
      () => undefined,
    )
  }
  try {
    const stub = await inTime(opening, deadline, signal)
    await inTime(reached(stub, deadline), deadline, signal)
    return {
      stub,
      callOptions: (callDeadline) => callArguments({ requiresLeader: true }, { deadline: callDeadline }),
    }
  } catch (error) {
    giveUp()
    throw new Unavailable(`the event store ${redactedUrl(url)} cannot be reached`, { cause: error })
  }
}

const connectionOf = (stub: StreamsClient, callOptions: () => [Metadata, CallOptions]): Connection => {
  const calls = new Set<{ cancel(): void }>()
  const keep = <Call extends AppendCall | ReadCall>(call: Call): Call => {
    calls.add(call)
    // A cancelled call emits another error, which needs a listener.
    call.on('error', () => undefined)
    call.on('status', () => calls.delete(call))
    return call
  }
  return {
    batchAppend: () => keep(stub.batchAppend(...callOptions())),
    read: (request) => {
      const call = keep(stub.read(request, ...callOptions()))
      // By default, the call would buffer 16 messages of up to a megabyte. There is no option for this.
      Reflect.set(Reflect.get(call, '_readableState'), 'highWaterMark', messagesAheadMax)
      return call
    },
    close: () => {
      for (const call of calls) call.cancel()
      stub.close()
    },
  }
}

const reached = (stub: Client, deadline: number): Promise<void> =>
  new Promise((resolve, reject) => {
    const channel = stub.getChannel()
    const look = (): void => {
      const state: number = channel.getConnectivityState(true)
      if (state === ready) resolve()
      else if (state === shutdown) reject(new Error('the connection was closed'))
      else if (state === transientFailure) failureOf(stub).then(reject)
      else {
        // A gRPC deadline is a point in time, not a duration.
        const grpcDeadlineMs = Date.now() + Math.max(0, deadline - performance.now())
        channel.watchConnectivityState(state, grpcDeadlineMs, (error) => (error ? reject(error) : look()))
      }
    }
    look()
  })

/** Returns the reason why a channel cannot connect. gRPC reports it only to a call, which fails without being sent. */
const failureOf = (stub: Client): Promise<Error> =>
  new Promise((resolve) => {
    const empty = (): Buffer => Buffer.alloc(0)
    stub.makeUnaryRequest('/', empty, empty, null, (error) =>
      resolve(error ?? new Error('connection refused or reset')),
    )
  })

const inTime = <Value>(work: Promise<Value>, deadline: number, signal: AbortSignal): Promise<Value> =>
  within(work, { waitMs: Math.max(0, deadline - performance.now()), signal }, () => {
    throw new Error(signal.aborted ? 'the event log is closed' : 'no connection in time')
  })

const permissionDenied = 7
const unauthenticated = 16

/** Explains why EventStoreDB cannot be used and what to do, based on the error of a call to that server. */
export const eventStoreDbFault = (url: string, error: unknown): string => {
  const server = `EventStoreDB at ${redactedUrl(url).split('?', 1)[0]}`
  const said = causesOf(error)
  const refused = said.find(({ code }) => code === unauthenticated)
  if (refused !== undefined)
    return (
      `${server} refuses the user or the password (${refused.message}). Correct them in the connection string, as in ` +
      'esdb://user:password@host:2113. Characters other than letters and digits must be percent-encoded.'
    )
  const denied = said.find(
    ({ code, message }) => code === permissionDenied || message.includes('event_store.client.AccessDenied'),
  )
  if (denied !== undefined)
    return (
      `${server} does not give the user the rights that the service needs (${denied.message}). As an administrator, run ` +
      '"event-log prepare --user NAME", or allow the user in $settings to read all events and to write streams.'
    )
  return (
    `${server} cannot be reached (${said.at(-1)?.message ?? 'no reason given'}). Start it, or correct the connection string: ` +
    'check the host and the port, set tlsCAFile=/path/ca.crt for your own CA, and set tls=false only for a server without TLS.'
  )
}

type Said = { readonly code: unknown; readonly message: string }

const causesOf = (error: unknown): Said[] => {
  const said: Said[] = []
  for (let at = error; at instanceof Error && said.length < 8; at = at.cause)
    said.push({ code: Reflect.get(at, 'code'), message: at.message.replace(/\s+/g, ' ') })
  return said
}
