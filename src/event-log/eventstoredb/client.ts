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
 * One connection to EventStoreDB, from the client package's own connection string, discovery, TLS and credentials.
 *
 * The package's `appendToStream`, `readStream` and `subscribeToAll` are not used. They parse and re-write JSON, so
 * bytes change; they keep the promises of all clients of a process in one map, so one client's broken stream rejects
 * another's appends and a late reply ends the process; they ignore the deadline of an append; and they first ask for
 * the server's features, remembering a failed answer forever. Instead, this calls the server's services directly,
 * through the stubs that the package generated.
 */

export type AppendCall = ClientDuplexStream<BatchAppendReq, BatchAppendResp>
export type ReadCall = ClientReadableStream<ReadResp>

export type Connection = {
  batchAppend(): AppendCall
  read(request: ReadReq): ReadCall
  /** Cancels every call and releases the sockets. They close immediately if no other connection uses them, otherwise within seconds. */
  close(): void
}

/** The parts of the client that its own calls are built on. The package declares them private or protected, so its version is pinned. */
type Internals = {
  readonly getGRPCClient: <Stub extends Client>(stub: StubOf<Stub>, name: string) => Promise<Stub>
  readonly callArguments: (
    options: { requiresLeader: boolean },
    call: { deadline: number },
  ) => [Metadata, CallOptions]
}

/** The calls of one of the server's services, as generated. */
type StubOf<Stub> = new (...args: never) => Stub

const internalsOf = (client: EventStoreDBClient): Internals => ({
  getGRPCClient: Reflect.get(client, 'getGRPCClient'),
  callArguments: Reflect.get(client, 'callArguments'),
})

/** How many messages of a read wait in memory for the reader. */
const messagesAheadMax = 4

/** As @grpc/grpc-js numbers them; that package is the client's, not ours to import values from. */
const ready = 2
const transientFailure = 3
const shutdown = 4

/** Every option the connection string may have. For any other option, the client prints the whole string, password included. */
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

/** The connection string without its user and password: the only form that may be logged or thrown. */
export const redactedUrl = (url: string): string => url.trim().replace(/^([^:/]*:\/\/).*@/, '$1***@')

/** Throws an Error that names the fault of a connection string, and never a secret in it. */
export const checkUrl = (url: string): void => {
  if (/^[^:/]*\+discover:\/\/[^?]*,/.test(url))
    throw new Error(
      "the event store's connection string has +discover and several hosts, of which only the first would ever be asked: leave out +discover, as in esdb://user:password@a:2113,b:2113?tls=true",
    )
  const options = url.includes('?') ? url.slice(url.indexOf('?') + 1) : ''
  for (const option of options === '' ? [] : options.split('&')) {
    const [name = '', value = ''] = option.split('=', 2)
    const flat = name.toLowerCase().replace(/[_-]/g, '')
    // An @ after a question mark may belong to a password that was not encoded.
    const shown = options.includes('@') ? '' : `: ${name}`
    if (!knownOptions.has(flat))
      throw new Error(`the event store's connection string has an option this service does not know${shown}`)
    if (flat === 'nodepreference' && value.toLowerCase() !== 'leader')
      throw new Error(
        "the event store's connection string must not prefer followers: every call asks the leader",
      )
  }
  create(url, 'check')
}

/** Whether a connection string holds credentials that the client silently ignores. */
export const dropsCredentials = (url: string): boolean =>
  redactedUrl(url) !== url.trim() && /[?&]tls=false/i.test(url)

let connections = 0
const keepAliveTimeoutMs = 10_000
/** Used instead of "never", because connections with "never" would share one socket. About 23 days. */
const keepAliveTimeoutMaxMs = 2_000_000_000
/**
 * How long one of several hosts may take to name the leader. The client's own five seconds are all the time a connection has: a host
 * that does not answer, asked first, would use it up.
 */
const gossipTimeoutSeconds = 1
const keepAliveTimeoutOption = /([?&]keep[-_]?alive[-_]?timeout=)(-?\d+)/i

/**
 * Connections to one server with equal options share one socket process-wide: a new client would get the socket the
 * last connection was given up for, and a subscription that is not read would hold up appends. So no two have equal options.
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

/** How long a lookup may take. */
const lookupWaitMs = 500
const lookups = new Map<string, Promise<boolean>>()

/**
 * Whether a host name resolves within half a second; an address always does. Node resolves names in its thread pool, of four threads,
 * and a lookup that the name server does not answer blocks one for ten seconds. A node that was removed may no longer have a name, so
 * each name has one lookup at a time: otherwise its lookups would take all threads, and no other name would resolve.
 */
export const resolves = async (host: string): Promise<boolean> => {
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
 * The connection string without those hosts whose name does not resolve now; unchanged if none resolves. If a single host is
 * left, it is named twice: the client asks for the leader only if it has several hosts, and the remaining host may be a follower.
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
    // The client's own message and error quote the string.
    throw new Error(
      `the event store's connection string ${redactedUrl(url)} cannot be used: see its host, port and options`,
    )
  }
}

export type ConnectOptions = {
  readonly url: string
  readonly role: 'append' | 'read' | 'subscribe' | 'users'
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** Connects, or throws `Unavailable`. Nothing is sent before this resolves. */
export const connect = async (options: ConnectOptions): Promise<Connection> => {
  const { stub, callOptions } = await connectTo(streamsGrpc.StreamsClient, options)
  return connectionOf(stub, () => callOptions(Number.POSITIVE_INFINITY))
}

/** Connects to one of the server's services, as `connect` does. */
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
    // A cancelled call fails once more, so it needs an error listener.
    call.on('error', () => undefined)
    call.on('status', () => calls.delete(call))
    return call
  }
  return {
    batchAppend: () => keep(stub.batchAppend(...callOptions())),
    read: (request) => {
      const call = keep(stub.read(request, ...callOptions()))
      // Sixteen messages would be read ahead, of up to a megabyte each. The constructor takes no options.
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
      else if (state === transientFailure || state === shutdown)
        reject(new Error('connection refused or reset'))
      else {
        // gRPC deadlines are times of day.
        const grpcDeadlineMs = Date.now() + Math.max(0, deadline - performance.now())
        channel.watchConnectivityState(state, grpcDeadlineMs, (error) => (error ? reject(error) : look()))
      }
    }
    look()
  })

const inTime = <Value>(work: Promise<Value>, deadline: number, signal: AbortSignal): Promise<Value> =>
  within(work, { waitMs: Math.max(0, deadline - performance.now()), signal }, () => {
    throw new Error(signal.aborted ? 'the event log is closed' : 'no connection in time')
  })
