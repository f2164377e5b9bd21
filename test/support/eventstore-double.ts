/**
 * A double of an EventStoreDB server for tests of our adapter, never of EventStoreDB. It uses the service definitions from which
 * the client package was generated, and follows the server's rules for revisions and resent ids in memory. It can fail in the
 * ways that servers and networks do. To run it as its own process: `node test/support/eventstore-double.ts --port 2113`.
 */
import { createRequire } from 'node:module'
import { createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { createServer as createTlsServer, TLSSocket } from 'node:tls'
import { pathToFileURL } from 'node:url'
import gossipGrpc from '@eventstore/db-client/generated/gossip_grpc_pb.js'
import gossipPb from '@eventstore/db-client/generated/gossip_pb.js'
import featuresGrpc from '@eventstore/db-client/generated/serverfeatures_grpc_pb.js'
import featuresPb from '@eventstore/db-client/generated/serverfeatures_pb.js'
import type { StreamIdentifier, UUID } from '@eventstore/db-client/generated/shared_pb.js'
import sharedPb from '@eventstore/db-client/generated/shared_pb.js'
import statusPb from '@eventstore/db-client/generated/status_pb.js'
import streamsGrpc from '@eventstore/db-client/generated/streams_grpc_pb.js'
import type {
  AppendReq,
  AppendResp,
  BatchAppendReq,
  BatchAppendResp,
  DeleteReq,
  DeleteResp,
  ReadReq,
  ReadResp,
  TombstoneReq,
  TombstoneResp,
} from '@eventstore/db-client/generated/streams_pb.js'
import streamsPb from '@eventstore/db-client/generated/streams_pb.js'
import type {
  ConnectionInjector,
  handleUnaryCall,
  Metadata,
  Server,
  ServerDuplexStream,
  ServerReadableStream,
  ServerWritableStream,
  sendUnaryData,
} from '@grpc/grpc-js'
import { doubleCertificate } from './eventstore-certificate.ts'
import { createAccess, type Users, unauthenticated } from './eventstore-double-access.ts'

// gRPC and the Any type are dependencies of the client package, so they are resolved from there.
const clientRequire = createRequire(createRequire(import.meta.url).resolve('@eventstore/db-client'))
const grpc: typeof import('@grpc/grpc-js') = clientRequire('@grpc/grpc-js')
const anyPb: typeof import('google-protobuf/google/protobuf/any_pb.js') = clientRequire(
  'google-protobuf/google/protobuf/any_pb.js',
)

const maxAppendSizeDefault = 1_048_576
const ticksPerMillisecond = 10_000
const largeBytes = 65_536

export type StoredEvent = {
  readonly id: string
  readonly type: string
  readonly contentType: string
  readonly data: Uint8Array
  readonly metadata: Uint8Array
  readonly stream: string
  readonly revision: number
  readonly position: bigint
  readonly createdMs: number
}

type ProposedEvent = Pick<StoredEvent, 'id' | 'type' | 'contentType' | 'data' | 'metadata'>

type Expected = bigint | 'none' | 'any' | 'exists'

type Committed =
  | { readonly kind: 'written'; readonly revision: number; readonly position?: bigint; readonly again?: true }
  | { readonly kind: 'wrong'; readonly current: number }
  | { readonly kind: 'deleted' }
  | { readonly kind: 'too-large'; readonly maxAppendSize: number }

/**
 * The outcome of one append.
 * - `lose-reply`: written, but no reply is sent.
 * - `lose-request`: not written, and no reply.
 * - `end-call`: written, and the call ends cleanly, with OK and without a reply.
 * - `cut`: written, and every connection is cut before the reply.
 * - `not-ready`, `busy`, `no-leader`: not handled, and the answer gives this reason.
 * - `server-timeout`: written, and answered with a timeout.
 * - `deny`: refused.
 * - `bad-request`: not written, and the answer says that the request is invalid.
 * - `hide-actual`: if the append conflicts, the server does not report the actual revision.
 * - a number: written, and answered after that many milliseconds.
 */
export type DoubleAppendFault =
  | 'lose-reply'
  | 'lose-request'
  | 'end-call'
  | 'cut'
  | 'not-ready'
  | 'busy'
  | 'no-leader'
  | 'server-timeout'
  | 'deny'
  | 'bad-request'
  | 'hide-actual'
  | number

/** The probabilities of faults per append, and the intervals between faults. A seed always produces the same choices. */
export type RandomFaults = {
  readonly seed: number
  readonly dropReplies?: number
  readonly dropRequests?: number
  readonly endCalls?: number
  readonly notReady?: number
  readonly serverTimeouts?: number
  /** The probability of a late answer, and its maximum delay. */
  readonly delays?: number
  readonly delayMaxMs?: number
  readonly cutEveryMs?: number
}

/** The server's answer to a read of the whole log that fails or cannot start at its position. */
type ReadRefusal = 'InvalidPosition' | 'Error'

export type EventStoreDoubleOptions = {
  readonly port?: number
  /** 23.10 answers "Error" for every position without an event. 24.10, the default, answers "Error" for some and "InvalidPosition" for others. */
  readonly version?: '23.10' | '24.10'
  /** The server writes an event of its own after this many events of clients; 0 for none. */
  readonly systemEventEvery?: number
  /** Servers before 23.10 never report that a subscription has caught up. */
  readonly saysCaughtUp?: boolean
  readonly maxAppendSize?: number
  /** The time to replicate a write, after which the write is answered. Default: one turn of the event loop. */
  readonly replicationMs?: number
  /** The server abandons a write after this time, and answers "timeout". */
  readonly writeTimeoutMs?: number
  /** The duration of the first append after the server has started. */
  readonly coldMs?: number
  readonly random?: RandomFaults
  /**
   * Uses TLS, requires a user and enforces the rights in `$settings`. The user `admin` exists. Default: like a server with
   * `--insecure`.
   */
  readonly secured?: { readonly adminPassword: string; readonly certificate?: { cert: string; key: string } }
  /** The address to listen on. Default: 127.0.0.1. */
  readonly host?: string
  /** The leader's address according to gossip. Default: this server on 127.0.0.1. */
  readonly leader?: { readonly address: string; readonly port: number }
  /** Preserves events and users when the process ends. Default: they are lost. */
  readonly journal?: Journal
}

/** The data that a server writes to its disk. */
export type Journal = {
  readonly events: readonly StoredEvent[]
  readonly users: Users
  keepEvents(events: readonly StoredEvent[]): void
  keepUsers(users: Users): void
}

export type EventStoreDouble = {
  readonly port: number
  readonly url: string
  onAppend: ((append: { stream: string; count: number }) => DoubleAppendFault | undefined) | undefined
  /** Whether the server fails a read of the whole log that starts at this position; null means the start or end of the log. */
  troubleAt: ((position: bigint | null) => boolean) | undefined
  /** A live subscriber that is further behind than this is dropped, as by servers before 24.2. */
  dropSlowerThan: number | undefined
  /** Checkpoints report the end of the log or a position past it, even if fewer events were delivered. */
  wrongCheckpoints: boolean
  /** Live subscriptions stay open but deliver nothing more, not even checkpoints. */
  stallSubscriptions: boolean
  readonly connections: number
  readonly subscriptions: number
  /** Appends the server received, written or not. */
  readonly appends: number
  readonly faults: number
  /** Every event of a stream, as the server stores it. */
  eventsOf(stream: string): readonly StoredEvent[]
  /**
   * Changes the text of a stored event, as someone with access to the server's files could. Throws if the event does not exist,
   * or if the text does not change.
   */
  alter(stream: string, revision: number, part: 'data' | 'metadata', change: (text: string) => string): void
  cutConnections(): void
  /** Ends all faults: random faults, and those that `onAppend` and `troubleAt` cause. */
  calm(): void
  /** Ends every subscription normally, with OK. */
  endSubscriptions(): void
  /** Closes all connections and accepts no new ones. */
  refuse(): Promise<void>
  accept(): Promise<void>
  /** The server stays connected and receives requests, but does not process or answer them until `speak`. */
  silence(): void
  speak(): void
  /** Cuts every connection and clears the recently seen ids, which a real server does not write to disk. */
  restart(): Promise<void>
  /** Stops, is restored from a copy made when the log ended at `position`, and starts again. */
  restore(position: bigint): Promise<void>
  close(): Promise<void>
}

export const startEventStoreDouble = async (
  options: EventStoreDoubleOptions = {},
): Promise<EventStoreDouble> => {
  const { systemEventEvery = 0, saysCaughtUp = true, maxAppendSize = maxAppendSizeDefault, random } = options
  const { version = '24.10' } = options
  const { replicationMs = 0, writeTimeoutMs = 2_000, coldMs = 0 } = options
  const { host = '127.0.0.1', journal } = options
  const log = createLog({ systemEventEvery, maxAppendSize, journal })
  const sockets = new Set<Socket>()
  const endings = new Set<() => void>()
  const chance = seeded(random?.seed ?? 1)
  const access =
    options.secured === undefined
      ? undefined
      : createAccess({
          adminPassword: options.secured.adminPassword,
          settings: () => {
            const last = log.eventsOf('$settings').at(-1)
            return last === undefined ? undefined : Buffer.from(last.data).toString()
          },
          ...(journal && { users: journal.users, keepUsers: journal.keepUsers }),
        })
  /** The last revision of each write that is not yet replicated. A resend of such a write is dropped. */
  const replicating = new Set<string>()
  let appends = 0
  let faults = 0
  let spoken = Promise.withResolvers<void>()
  spoken.resolve()

  const randomFault = (): DoubleAppendFault | undefined => {
    if (random === undefined || calm) return undefined
    let at = chance()
    const within = (share = 0): boolean => {
      at -= share
      return at < 0
    }
    if (within(random.dropReplies)) return 'lose-reply'
    if (within(random.dropRequests)) return 'lose-request'
    if (within(random.endCalls)) return 'end-call'
    if (within(random.notReady)) return 'not-ready'
    if (within(random.serverTimeouts)) return 'server-timeout'
    if (within(random.delays)) return Math.ceil(chance() * (random.delayMaxMs ?? 50))
    return undefined
  }

  const cutConnections = (): void => {
    for (const socket of sockets) socket.destroy()
  }

  /** One append, including faults. Sends no answer if the reply is lost. */
  const handleAppend = async (
    append: { stream: string; expected: Expected; events: readonly ProposedEvent[]; metadata: Metadata },
    reply: { say: (outcome: Committed | DoubleAppendFault, hideActual: boolean) => void; end: () => void },
  ): Promise<void> => {
    if (silent) await spoken.promise
    appends++
    const fault = double.onAppend?.({ stream: append.stream, count: append.events.length }) ?? randomFault()
    if (fault !== undefined) faults++
    if (fault === 'lose-request') return
    if (isRefusal(fault)) return reply.say(fault, false)
    if (access?.refusal(append.metadata, append.stream, '$w') !== undefined) return reply.say('deny', false)
    if (append.stream === '') return reply.say('bad-request', false)
    if (coldMs > 0 && appends === 1) await sleep(coldMs)
    const outcome = log.commit(append.stream, append.expected, append.events)
    if (outcome.kind === 'written') {
      const place = `${append.stream}@${outcome.revision}`
      if (outcome.again === true && replicating.has(place)) {
        // A real server logs: "Dropping idempotent write, since the original write has not yet been replicated".
        await sleep(writeTimeoutMs)
        return reply.say('server-timeout', false)
      }
      replicating.add(place)
      await (replicationMs === 0 ? new Promise(setImmediate) : sleep(replicationMs))
      replicating.delete(place)
    }
    if (fault === 'lose-reply') return
    if (fault === 'end-call') return reply.end()
    if (fault === 'cut') return cutConnections()
    if (fault === 'server-timeout') return reply.say(fault, false)
    if (typeof fault === 'number') await sleep(fault)
    reply.say(outcome, fault === 'hide-actual')
  }

  const batchAppend = (call: ServerDuplexStream<BatchAppendReq, BatchAppendResp>): void => {
    if (access?.refusal(call.metadata, '', '$w') === unauthenticated)
      return void call.emit('error', { code: unauthenticated, details: 'wrong user or password' })
    type Open = { readonly options: BatchAppendReq.Options; readonly events: ProposedEvent[] }
    const open = new Map<string, Open>()
    call.on('data', (request: BatchAppendReq) => {
      const correlationId = request.getCorrelationId()
      const key = correlationId?.getString() ?? ''
      const optionsSent = request.getOptions()
      if (optionsSent !== undefined) open.set(key, { options: optionsSent, events: [] })
      const batch = open.get(key)
      if (batch === undefined) return
      batch.events.push(...request.getProposedMessagesList().map(proposed))
      if (!request.getIsFinal()) return
      open.delete(key)
      const stream = nameOf(batch.options.getStreamIdentifier())
      const expected = batchExpected(batch.options)
      void handleAppend(
        { stream, expected, events: batch.events, metadata: call.metadata },
        {
          say: (outcome, hideActual) =>
            call.write(batchReply(correlationId, { stream, expected, outcome, hideActual })),
          end: () => call.end(),
        },
      )
    })
    call.on('end', () => call.end())
    call.on('error', () => undefined)
  }

  const append = (
    call: ServerReadableStream<AppendReq, AppendResp>,
    answer: sendUnaryData<AppendResp>,
  ): void => {
    const events: ProposedEvent[] = []
    let header: AppendReq.Options | undefined
    call.on('data', (request: AppendReq) => {
      header ??= request.getOptions()
      const message = request.getProposedMessage()
      if (message !== undefined) events.push(proposed(message))
    })
    call.on('end', () => {
      const expected = classicExpected(header)
      void handleAppend(
        { stream: nameOf(header?.getStreamIdentifier()), expected, events, metadata: call.metadata },
        {
          say: (outcome) => {
            if (typeof outcome !== 'object' || outcome.kind === 'deleted' || outcome.kind === 'too-large')
              return answer({ code: grpc.status.UNAVAILABLE, details: `a fault: ${JSON.stringify(outcome)}` })
            answer(null, classicReply(outcome, expected))
          },
          end: () => call.destroy(),
        },
      )
    })
    call.on('error', () => undefined)
  }

  const read = async (call: ServerWritableStream<ReadReq, ReadResp>): Promise<void> => {
    if (silent) await spoken.promise
    const asked = call.request.getOptions()
    if (asked === undefined) return fail(call, grpc.status.INVALID_ARGUMENT, 'no options')
    const wanted = asked.getStream()?.getStreamIdentifier()
    const refused = access?.refusal(call.metadata, wanted === undefined ? '$all' : nameOf(wanted), '$r')
    if (refused !== undefined) return fail(call, refused, 'Access Denied', 'access-denied')
    const send = async (response: ReadResp): Promise<void> => {
      if (silent) await spoken.promise
      if (call.cancelled || call.destroyed) return
      // The Node.js gRPC library would buffer sixteen messages of any size, but a real server does not.
      const large = (response.getEvent()?.getEvent()?.getData_asU8().length ?? 0) > largeBytes
      const written = Promise.withResolvers<void>()
      if (call.write(response, large ? () => written.resolve() : undefined) && !large) return
      for (const event of ['drain', 'close', 'cancelled'] as const) call.once(event, written.resolve)
      await written.promise
      for (const event of ['drain', 'close', 'cancelled'] as const) call.off(event, written.resolve)
    }
    const refusal = asked.hasAll() ? readRefusal(asked) : undefined
    const result = asked.hasFilter() ? 'FilteredReadAllResult' : 'ReadAllResult'
    if (refusal !== undefined) return fail(call, grpc.status.UNKNOWN, `Unexpected ${result}: ${refusal}`)
    if (asked.hasSubscription()) return subscribe(call, asked, send)
    const found = log.find(asked)
    if (found === 'missing') await send(notFound(asked.getStream()?.getStreamIdentifier()))
    else if (found === 'deleted')
      return fail(call, grpc.status.FAILED_PRECONDITION, 'the stream is deleted', 'stream-deleted')
    else {
      const max = Number(asked.getCount())
      for (const event of found.take(max)) {
        if (call.cancelled || call.destroyed) return
        await send(eventResponse(event, asked.hasAll()))
      }
    }
    call.end()
  }

  const readRefusal = (asked: ReadReq.Options): ReadRefusal | undefined => {
    const place = asked.getAll()?.getPosition()
    const position = place === undefined ? null : BigInt(place.getCommitPosition())
    if (double.troubleAt?.(position) === true) return 'Error'
    if (position === null || log.isPlace(position)) return undefined
    // For a position without an event, 24.10 reports "InvalidPosition" or "Error", depending on the bytes at that position.
    return version === '23.10' || position % 3n === 0n ? 'Error' : 'InvalidPosition'
  }

  const subscribe = async (
    call: ServerWritableStream<ReadReq, ReadResp>,
    asked: ReadReq.Options,
    send: (response: ReadResp) => Promise<void>,
  ): Promise<void> => {
    let next = log.indexAfter(asked)
    const filter = asked.getFilter()
    const interval = (filter?.getMax() || 32) * (filter?.getCheckpointintervalmultiplier() || 1)
    const end = (): void => {
      call.end()
      endings.delete(end)
    }
    endings.add(end)
    call.on('close', () => endings.delete(end))
    call.on('cancelled', () => endings.delete(end))
    const confirmation = new streamsPb.ReadResp.SubscriptionConfirmation()
    confirmation.setSubscriptionId('double')
    const confirmed = new streamsPb.ReadResp()
    confirmed.setConfirmation(confirmation)
    await send(confirmed)
    let live = false
    let passed = 0
    while (!call.cancelled && !call.destroyed && endings.has(end)) {
      const event = log.at(next)
      if (event === undefined || (live && double.stallSubscriptions)) {
        if (!live && saysCaughtUp) {
          const caughtUp = new streamsPb.ReadResp()
          caughtUp.setCaughtUp(new streamsPb.ReadResp.CaughtUp())
          await send(caughtUp)
        }
        if (!live && filter !== undefined)
          await send(checkpoint(log.checkpointAt(next, double.wrongCheckpoints)))
        live = true
        if (log.at(next) === undefined || double.stallSubscriptions) await log.changed(call)
        continue
      }
      next++
      if (filter === undefined || filtered(filter, event)) await send(eventResponse(event, true))
      if (filter !== undefined && ++passed % interval === 0)
        await send(checkpoint(log.checkpointAt(next, double.wrongCheckpoints)))
      if (live && double.dropSlowerThan !== undefined && log.length - next > double.dropSlowerThan)
        return fail(
          call,
          grpc.status.ABORTED,
          'Operation timed out: Consumer too slow to handle event while live.',
        )
    }
  }

  const tombstone: handleUnaryCall<TombstoneReq, TombstoneResp> = (call, answer) => {
    log.tombstone(nameOf(call.request.getOptions()?.getStreamIdentifier()))
    const response = new streamsPb.TombstoneResp()
    response.setNoPosition(new sharedPb.Empty())
    answer(null, response)
  }

  const softDelete: handleUnaryCall<DeleteReq, DeleteResp> = (call, answer) => {
    log.softDelete(nameOf(call.request.getOptions()?.getStreamIdentifier()))
    const response = new streamsPb.DeleteResp()
    response.setNoPosition(new sharedPb.Empty())
    answer(null, response)
  }

  const server = new grpc.Server({ 'grpc.max_receive_message_length': 32 * 1024 * 1024 })
  server.addService(streamsGrpc.StreamsService, {
    append,
    batchAppend,
    read: (call: ServerWritableStream<ReadReq, ReadResp>) => void read(call),
    tombstone,
    delete: softDelete,
  })
  addDiscovery(server, {
    leader: () => options.leader ?? { address: '127.0.0.1', port: double.port },
    version,
  })
  access?.addTo(server)
  const injector: ConnectionInjector = server.createConnectionInjector(
    grpc.ServerCredentials.createInsecure(),
  )
  const join = (socket: Socket): void => {
    sockets.add(socket)
    socket.setNoDelay(true)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    // The client uses plain HTTP, for example for a health check.
    if (socket instanceof TLSSocket && socket.alpnProtocol === 'http/1.1')
      return void socket.end('HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n')
    injector.injectConnection(socket)
  }
  const listener =
    options.secured === undefined
      ? createServer(join)
      : createTlsServer(
          {
            ...doubleCertificate,
            ...options.secured.certificate,
            ALPNProtocols: ['http/1.1', 'h2'],
          },
          join,
        )
  const listen = (port: number): Promise<number> =>
    new Promise((resolve, reject) => {
      listener.once('error', reject)
      listener.listen(port, host, () => {
        listener.off('error', reject)
        const address = listener.address()
        if (address === null || typeof address === 'string') reject(new Error('the double has no port'))
        else resolve(address.port)
      })
    })
  const port = await listen(options.port ?? 0)
  let silent = false
  let calm = false
  let listening = true
  const stopListening = async (): Promise<void> => {
    if (!listening) return
    listening = false
    const closed = new Promise((resolve) => listener.close(resolve))
    cutConnections()
    await closed
  }
  const cutting =
    random?.cutEveryMs === undefined
      ? undefined
      : setInterval(cutConnections, random.cutEveryMs * (0.5 + chance()))
  cutting?.unref()

  const double: EventStoreDouble = {
    port,
    url: `esdb://127.0.0.1:${port}${options.secured === undefined ? '?tls=false' : ''}`,
    onAppend: undefined,
    troubleAt: undefined,
    dropSlowerThan: undefined,
    wrongCheckpoints: false,
    stallSubscriptions: false,
    get connections() {
      return sockets.size
    },
    get subscriptions() {
      return endings.size
    },
    get appends() {
      return appends
    },
    get faults() {
      return faults
    },
    eventsOf: log.eventsOf,
    alter: log.alter,
    cutConnections,
    calm: () => {
      calm = true
      clearInterval(cutting)
      double.onAppend = undefined
      double.troubleAt = undefined
    },
    endSubscriptions: () => {
      for (const end of [...endings]) end()
      log.wake()
    },
    refuse: stopListening,
    accept: async () => {
      await listen(port)
      listening = true
    },
    silence: () => {
      silent = true
      spoken = Promise.withResolvers()
    },
    speak: () => {
      silent = false
      spoken.resolve()
    },
    restart: async () => {
      await stopListening()
      log.forgetRecentIds()
      await listen(port)
      listening = true
    },
    restore: async (position) => {
      await stopListening()
      log.restore(position)
      await listen(port)
      listening = true
    },
    close: async () => {
      clearInterval(cutting)
      double.speak()
      await stopListening()
      injector.destroy()
      server.forceShutdown()
    },
  }
  return double
}

/** The server refused the append and wrote nothing. */
const isRefusal = (fault: DoubleAppendFault | undefined): fault is DoubleAppendFault =>
  ['not-ready', 'busy', 'no-leader', 'deny', 'bad-request'].some((refusal) => refusal === fault)

const createLog = ({
  systemEventEvery,
  maxAppendSize,
  journal,
}: {
  systemEventEvery: number
  maxAppendSize: number
  journal: Journal | undefined
}) => {
  const all: StoredEvent[] = [...(journal?.events ?? [])]
  const streams = new Map<string, StoredEvent[]>()
  for (const event of all) {
    const standing = streams.get(event.stream) ?? []
    streams.set(event.stream, standing)
    standing.push(event)
  }
  const deleted = new Set<string>()
  /** Recently written ids, by stream. Appends with the expected revision "any" are compared with them. A restart clears them. */
  const recentIds = new Map<string, number>()
  const waiting = new Set<() => void>()
  let position = all.at(-1)?.position ?? 0n
  let sinceSystemEvent = 0

  const wake = (): void => {
    for (const awake of [...waiting]) awake()
  }

  const write = (stream: string, events: readonly ProposedEvent[]): StoredEvent[] => {
    const standing = streams.get(stream) ?? []
    streams.set(stream, standing)
    const written = events.map((event) => {
      // Positions are offsets in a file, so each position grows by the size of the record.
      position += BigInt(120 + event.data.length + event.metadata.length)
      const stored = { ...event, stream, revision: standing.length, position, createdMs: Date.now() }
      standing.push(stored)
      all.push(stored)
      recentIds.set(`${stream}/${event.id}`, stored.revision)
      return stored
    })
    journal?.keepEvents(written)
    wake()
    return written
  }

  const writeOwn = (stream: string, type: string, json: string): void => {
    const data = new TextEncoder().encode(json)
    const contentType = 'application/json'
    write(stream, [{ id: crypto.randomUUID(), type, contentType, data, metadata: new Uint8Array() }])
  }
  const writeSystemEvent = (): void => writeOwn('$stats-127.0.0.1:2113', '$statsCollected', '{"proc":1}')
  if (systemEventEvery > 0 && all.length === 0) for (let n = 0; n < 3; n++) writeSystemEvent()

  /** The first revision that the metadata of a stream leaves readable. Infinity: the stream is deleted, but can be written again. */
  const readableFrom = (stream: string): number => {
    const last = streams.get(`$$${stream}`)?.at(-1)
    if (last === undefined) return 0
    const {
      $tb = 0,
      $maxCount,
      $maxAge,
    } = JSON.parse(Buffer.from(last.data).toString()) as {
      $tb?: number
      $maxCount?: number
      $maxAge?: number
    }
    const standing = streams.get(stream) ?? []
    if ($tb > Number.MAX_SAFE_INTEGER) return Number.POSITIVE_INFINITY
    const oldestMs = $maxAge === undefined ? 0 : Date.now() - $maxAge * 1_000
    const young = standing.findIndex(({ createdMs }) => createdMs >= oldestMs)
    return Math.max(
      $tb,
      $maxCount === undefined ? 0 : standing.length - $maxCount,
      young === -1 ? standing.length : young,
    )
  }

  /** Decides whether to write, by the rules of the server's index writer. */
  const commit = (stream: string, expected: Expected, events: readonly ProposedEvent[]): Committed => {
    const size = events.reduce(
      (sum, { type, data, metadata }) => sum + 2 * type.length + data.length + metadata.length,
      0,
    )
    if (size > maxAppendSize) return { kind: 'too-large', maxAppendSize }
    if (deleted.has(stream)) return { kind: 'deleted' }
    const standing = streams.get(stream) ?? []
    const current = standing.length - 1
    const known = (revision: number): Committed => ({ kind: 'written', revision, again: true })
    if (expected === 'any' || expected === 'exists') {
      if (expected === 'exists' && current < 0) return { kind: 'wrong', current }
      const [first, ...later] = events.map(({ id }) => recentIds.get(`${stream}/${id}`))
      if (first !== undefined)
        return later.every((at, i) => at === first + 1 + i)
          ? known(first + later.length)
          : { kind: 'wrong', current }
    } else {
      const isRevived = expected === 'none' && readableFrom(stream) === Number.POSITIVE_INFINITY
      if (isRevived) writeOwn(`$$${stream}`, '$metadata', `{"$tb":${standing.length}}`)
      const at = isRevived ? current : expected === 'none' ? -1 : Number(expected)
      if (at > current) return { kind: 'wrong', current }
      if (at < current) {
        const repeated = events.length > 0 && events.every(({ id }, i) => standing[at + 1 + i]?.id === id)
        return repeated ? known(at + events.length) : { kind: 'wrong', current }
      }
      // If the expected revision is the current one, the server does not compare ids.
    }
    const last = write(stream, events).at(-1)
    sinceSystemEvent += events.length
    if (systemEventEvery > 0 && sinceSystemEvent >= systemEventEvery) {
      sinceSystemEvent = 0
      writeSystemEvent()
    }
    return { kind: 'written', revision: current + events.length, ...(last && { position: last.position }) }
  }

  const indexAt = (at: bigint): number => {
    let [low, high] = [0, all.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((all[middle]?.position ?? 0n) < at) low = middle + 1
      else high = middle
    }
    return low
  }

  const placeOf = (asked: ReadReq.Options): number | undefined => {
    const place = asked.getAll()?.getPosition()
    return place === undefined ? undefined : indexAt(BigInt(place.getCommitPosition()))
  }

  function* backwards(events: readonly StoredEvent[], from: number, to = 0): Generator<StoredEvent> {
    for (let i = Math.min(from, events.length - 1); i >= to; i--) {
      const event = events[i]
      if (event !== undefined) yield event
    }
  }

  function* forwards(events: readonly StoredEvent[], from: number): Generator<StoredEvent> {
    const end = events.length
    for (let i = from; i < end; i++) {
      const event = events[i]
      if (event !== undefined) yield event
    }
  }

  function* matching(
    events: Generator<StoredEvent>,
    filter: ReadReq.Options.FilterOptions,
  ): Generator<StoredEvent> {
    for (const event of events) if (filtered(filter, event)) yield event
  }

  const alter: EventStoreDouble['alter'] = (stream, revision, part, change) => {
    const standing = streams.get(stream)?.[revision]
    if (standing === undefined) throw new Error(`the double keeps no event ${revision} of ${stream}`)
    const text = Buffer.from(standing[part]).toString()
    const changed = change(text)
    if (changed === text) throw new Error(`nothing changes in the ${part} of event ${revision} of ${stream}`)
    const altered = { ...standing, [part]: Uint8Array.from(Buffer.from(changed)) }
    streams.get(stream)?.splice(revision, 1, altered)
    all.splice(indexAt(standing.position), 1, altered)
  }

  return {
    commit,
    wake,
    eventsOf: (stream: string): readonly StoredEvent[] => streams.get(stream) ?? [],
    alter,
    tombstone: (stream: string) => deleted.add(stream),
    softDelete: (stream: string) => writeOwn(`$$${stream}`, '$metadata', '{"$tb":9223372036854775807}'),
    forgetRecentIds: () => recentIds.clear(),
    restore: (to: bigint): void => {
      recentIds.clear()
      all.splice(indexAt(to + 1n))
      position = all.at(-1)?.position ?? 0n
      for (const [stream, standing] of streams) {
        const kept = standing.filter((event) => event.position <= to)
        if (kept.length === 0) streams.delete(stream)
        else streams.set(stream, kept)
      }
    },
    get length() {
      return all.length
    },
    at: (index: number): StoredEvent | undefined => all[index],
    isPlace: (position: bigint): boolean => all[indexAt(position)]?.position === position,
    /** Returns the existing events that a read requests. */
    find: (asked: ReadReq.Options): Generator<StoredEvent> | 'missing' | 'deleted' => {
      const toFront = asked.getReadDirection() === 1
      const stream = asked.getStream()
      if (stream === undefined) {
        const place = placeOf(asked)
        // When reading backwards, the start position is exclusive, as on the server.
        const found = toFront
          ? backwards(all, place === undefined ? all.length : place - 1)
          : forwards(all, place ?? 0)
        const filter = asked.getFilter()
        return filter === undefined ? found : matching(found, filter)
      }
      const name = nameOf(stream.getStreamIdentifier())
      if (deleted.has(name)) return 'deleted'
      const standing = streams.get(name)
      const first = readableFrom(name)
      if (standing === undefined || first === Number.POSITIVE_INFINITY) return 'missing'
      const from = stream.hasRevision() ? Number(stream.getRevision()) : undefined
      // The server searches the index downwards from the start, so a start beyond the end finds no events.
      if (toFront && from !== undefined && from >= standing.length) return forwards([], 0)
      return toFront
        ? backwards(standing, from ?? standing.length, first)
        : forwards(standing, Math.max(from ?? 0, first))
    },
    indexAfter: (asked: ReadReq.Options): number => {
      if (asked.getAll()?.hasEnd()) return all.length
      const place = placeOf(asked)
      return place === undefined ? 0 : place + 1
    },
    checkpointAt: (next: number, wrong: boolean): bigint =>
      wrong ? position + 1_000n : (all[next - 1]?.position ?? 0n),
    /** Resolves when a write has happened, or when the call ends. */
    changed: (call: ServerWritableStream<ReadReq, ReadResp>): Promise<void> =>
      new Promise((resolve) => {
        const done = (): void => {
          waiting.delete(done)
          for (const event of ['close', 'cancelled'] as const) call.off(event, done)
          resolve()
        }
        waiting.add(done)
        for (const event of ['close', 'cancelled'] as const) call.on(event, done)
      }),
  }
}

const nameOf = (identifier: StreamIdentifier | undefined): string =>
  Buffer.from(identifier?.getStreamName_asU8() ?? []).toString()

const proposed = (message: BatchAppendReq.ProposedMessage | AppendReq.ProposedMessage): ProposedEvent => ({
  id: message.getId()?.getString() ?? '',
  type: message.getMetadataMap().get('type') ?? '',
  contentType: message.getMetadataMap().get('content-type') ?? '',
  // The bytes are copied, because they are a view of the whole request.
  data: Uint8Array.from(message.getData_asU8()),
  metadata: Uint8Array.from(message.getCustomMetadata_asU8()),
})

const batchExpected = (options: BatchAppendReq.Options): Expected => {
  if (options.hasNoStream()) return 'none'
  if (options.hasAny()) return 'any'
  return options.hasStreamExists() ? 'exists' : BigInt(options.getStreamPosition())
}

const classicExpected = (options: AppendReq.Options | undefined): Expected => {
  if (options === undefined || options.hasAny()) return 'any'
  if (options.hasNoStream()) return 'none'
  return options.hasStreamExists() ? 'exists' : BigInt(options.getRevision())
}

const batchReply = (
  correlationId: UUID | undefined,
  answer: { stream: string; expected: Expected; outcome: Committed | DoubleAppendFault; hideActual: boolean },
): BatchAppendResp => {
  const { stream, expected, outcome, hideActual } = answer
  const response = new streamsPb.BatchAppendResp()
  response.setCorrelationId(correlationId)
  response.setStreamIdentifier(identifier(stream))
  if (typeof outcome === 'object' && outcome.kind === 'written') {
    const success = new streamsPb.BatchAppendResp.Success()
    if (outcome.revision < 0) success.setNoStream(new sharedPb.Empty())
    else success.setCurrentRevision(String(outcome.revision))
    if (outcome.position === undefined) success.setNoPosition(new sharedPb.Empty())
    else {
      const place = new sharedPb.AllStreamPosition()
      place.setCommitPosition(outcome.position.toString())
      place.setPreparePosition(outcome.position.toString())
      success.setPosition(place)
    }
    response.setSuccess(success)
    return response
  }
  const status = new statusPb.Status()
  const details = new anyPb.Any()
  const say = (message: string, type: string, bytes: Uint8Array = new Uint8Array()): void => {
    status.setMessage(message)
    details.pack(bytes, type)
  }
  if (outcome === 'not-ready') say('Server Is Not Ready', 'google.protobuf.Empty')
  else if (outcome === 'busy') say('Server Is Busy', 'google.protobuf.Empty')
  else if (outcome === 'no-leader') say('No leader info available in response', 'google.protobuf.Empty')
  else if (outcome === 'deny') say('Access Denied', 'event_store.client.AccessDenied')
  else if (outcome === 'bad-request') say('BadRequest', 'event_store.client.BadRequest')
  else if (typeof outcome !== 'object') say('Timeout', 'event_store.client.Timeout')
  else if (outcome.kind === 'deleted') {
    const gone = new sharedPb.StreamDeleted()
    gone.setStreamIdentifier(identifier(stream))
    say('StreamDeleted', 'event_store.client.StreamDeleted', gone.serializeBinary())
  } else if (outcome.kind === 'too-large') {
    const exceeded = new sharedPb.MaximumAppendSizeExceeded()
    exceeded.setMaxappendsize(outcome.maxAppendSize)
    say(
      'MaximumAppendSizeExceeded',
      'event_store.client.MaximumAppendSizeExceeded',
      exceeded.serializeBinary(),
    )
  } else {
    const wrong = new sharedPb.WrongExpectedVersion()
    if (!hideActual && outcome.current < 0) wrong.setCurrentNoStream(new sharedPb.Empty())
    else if (!hideActual) wrong.setCurrentStreamRevision(String(outcome.current))
    if (expected === 'none') wrong.setExpectedNoStream(new sharedPb.Empty())
    else if (expected === 'any') wrong.setExpectedAny(new sharedPb.Empty())
    else if (expected === 'exists') wrong.setExpectedStreamExists(new sharedPb.Empty())
    else wrong.setExpectedStreamPosition(expected.toString())
    say('WrongExpectedVersion', 'event_store.client.WrongExpectedVersion', wrong.serializeBinary())
  }
  status.setDetails(details)
  response.setError(status)
  return response
}

const classicReply = (
  outcome: Extract<Committed, { kind: 'written' | 'wrong' }>,
  expected: Expected,
): AppendResp => {
  const response = new streamsPb.AppendResp()
  if (outcome.kind === 'written') {
    const success = new streamsPb.AppendResp.Success()
    success.setCurrentRevision(String(outcome.revision))
    success.setNoPosition(new sharedPb.Empty())
    response.setSuccess(success)
    return response
  }
  const wrong = new streamsPb.AppendResp.WrongExpectedVersion()
  if (outcome.current < 0) wrong.setCurrentNoStream(new sharedPb.Empty())
  else wrong.setCurrentRevision(String(outcome.current))
  if (expected === 'none') wrong.setExpectedNoStream(new sharedPb.Empty())
  else if (typeof expected === 'bigint') wrong.setExpectedRevision(expected.toString())
  response.setWrongExpectedVersion(wrong)
  return response
}

const identifier = (stream: string): StreamIdentifier => {
  const name = new sharedPb.StreamIdentifier()
  name.setStreamName(Buffer.from(stream))
  return name
}

const eventResponse = (event: StoredEvent, ofAll: boolean): ReadResp => {
  const id = new sharedPb.UUID()
  id.setString(event.id)
  const record = new streamsPb.ReadResp.ReadEvent.RecordedEvent()
  record.setId(id)
  record.setStreamIdentifier(identifier(event.stream))
  record.setStreamRevision(String(event.revision))
  record.setCommitPosition(event.position.toString())
  record.setPreparePosition(event.position.toString())
  record
    .getMetadataMap()
    .set('type', event.type)
    .set('content-type', event.contentType)
    .set('created', String(event.createdMs * ticksPerMillisecond))
  record.setData(event.data)
  record.setCustomMetadata(event.metadata)
  const read = new streamsPb.ReadResp.ReadEvent()
  read.setEvent(record)
  if (ofAll) read.setCommitPosition(event.position.toString())
  else read.setNoPosition(new sharedPb.Empty())
  const response = new streamsPb.ReadResp()
  response.setEvent(read)
  return response
}

const notFound = (stream: StreamIdentifier | undefined): ReadResp => {
  const missing = new streamsPb.ReadResp.StreamNotFound()
  missing.setStreamIdentifier(stream)
  const response = new streamsPb.ReadResp()
  response.setStreamNotFound(missing)
  return response
}

const checkpoint = (position: bigint): ReadResp => {
  const place = new streamsPb.ReadResp.Checkpoint()
  place.setCommitPosition(position.toString())
  place.setPreparePosition(position.toString())
  const response = new streamsPb.ReadResp()
  response.setCheckpoint(place)
  return response
}

const filtered = (filter: ReadReq.Options.FilterOptions, event: StoredEvent): boolean => {
  const on = filter.getStreamIdentifier() ?? filter.getEventType()
  const text = filter.hasStreamIdentifier() ? event.stream : event.type
  const regex = on?.getRegex() ?? ''
  return regex === ''
    ? (on?.getPrefixList() ?? []).some((prefix) => text.startsWith(prefix))
    : new RegExp(regex).test(text)
}

/** Fails the call by emitting an error. If the call were destroyed, the client would wait forever. */
const fail = (
  call: ServerWritableStream<ReadReq, ReadResp>,
  code: number,
  details: string,
  exception?: string,
): void => {
  const metadata = new grpc.Metadata()
  if (exception !== undefined) metadata.set('exception', exception)
  call.emit('error', { code, details, metadata })
}

const addDiscovery = (
  server: Server,
  { leader, version }: { leader: () => { address: string; port: number }; version: string },
): void => {
  server.addService(featuresGrpc.ServerFeaturesService, {
    getSupportedMethods: ((_call, answer) => {
      const methods = new featuresPb.SupportedMethods()
      methods.setEventStoreServerVersion(`${version}.0-double`)
      methods.setMethodsList(
        ['append', 'batchappend', 'read', 'tombstone', 'delete'].map((name) => {
          const method = new featuresPb.SupportedMethod()
          method.setServiceName('event_store.client.streams.streams')
          method.setMethodName(name)
          return method
        }),
      )
      answer(null, methods)
    }) satisfies handleUnaryCall<unknown, InstanceType<typeof featuresPb.SupportedMethods>>,
  })
  server.addService(gossipGrpc.GossipService, {
    read: ((_call, answer) => {
      const endPoint = new gossipPb.EndPoint()
      endPoint.setAddress(leader().address)
      endPoint.setPort(leader().port)
      const member = new gossipPb.MemberInfo()
      member.setState(gossipPb.MemberInfo.VNodeState.LEADER)
      member.setIsAlive(true)
      member.setHttpEndPoint(endPoint)
      const cluster = new gossipPb.ClusterInfo()
      cluster.setMembersList([member])
      answer(null, cluster)
    }) satisfies handleUnaryCall<unknown, InstanceType<typeof gossipPb.ClusterInfo>>,
  })
}

/** The random generator Mulberry32: small, fast, and with the same results on every platform. */
const seeded = (seed: number) => {
  let state = seed >>> 0
  return (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const at = process.argv.indexOf('--port')
  const double = await startEventStoreDouble({
    port: at === -1 ? 0 : Number(process.argv[at + 1]),
    systemEventEvery: 100,
  })
  console.log(double.url)
}
