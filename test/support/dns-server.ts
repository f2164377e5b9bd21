/** A DNS server on the loopback, over UDP and TCP, that answers from a table and counts its queries. */
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { createTCPServer, createUDPServer, Packet } from 'dns2'

export type RecordType = 'A' | 'AAAA' | 'MX' | 'CNAME' | 'PTR'

type Mx = { readonly priority: number; readonly exchange: string }

/**
 * The answer for a name and type: records, or how the server fails. A null MX is `[{ priority: 0, exchange: '' }]`. `no_data`
 * means that the name exists without such records. With `silence` the server never answers.
 */
export type ZoneAnswer =
  | readonly string[]
  | readonly Mx[]
  | { readonly records: readonly string[] | readonly Mx[]; readonly ttlSeconds: number }
  | 'no_data'
  | 'not_found'
  | 'servfail'
  | 'refused'
  | 'silence'

/**
 * Answers by name, then by type. A name that is not listed is NXDOMAIN; a type that is not listed has no data. A single answer
 * applies to all types of its name.
 */
export type Zones = Readonly<Record<string, ZoneAnswer | Readonly<Partial<Record<RecordType, ZoneAnswer>>>>>

export type DnsServerDouble = {
  /** The server's address as in DNS_SERVERS: `127.0.0.1:port`. */
  readonly address: string
  /** Returns all queries so far, in order, such as `MX example.test`. With `only`, returns those equal to it. */
  queries(only?: string): string[]
  /** Changes one answer for later queries. */
  set(name: string, type: RecordType, answer: ZoneAnswer): void
  close(): Promise<void>
}

export type DnsServerOptions = {
  /** The TTL of records that have none of their own. */
  readonly ttlSeconds?: number
  /** The TTL in the SOA record of a negative answer. Null: the answer has no SOA record. */
  readonly negativeTtlSeconds?: number | null
  readonly delayMs?: number
  /** Whether UDP queries get a truncated answer, so that the client retries over TCP. */
  readonly truncate?: boolean
}

const ttlSecondsDefault = 60
const aliasesMax = 8
const portAttemptsMax = 10

export const startDnsServer = async (
  zones: Zones,
  options: DnsServerOptions = {},
): Promise<DnsServerDouble> => {
  const table = tableOf(zones)
  const asked: string[] = []
  let closed = false
  const { port, close } = await listen(async (request, send, overUdp) => {
    const [question] = request.questions
    if (question === undefined) return
    const name = question.name.toLowerCase()
    const type = typeNames[question.type ?? 0] ?? `TYPE${question.type}`
    asked.push(`${type} ${name}`)
    if (options.delayMs !== undefined) await delay(options.delayMs)
    if (closed) return
    const response = Packet.createResponseFromRequest(request)
    if (options.truncate === true && overUdp) response.header.tc = 1
    else if (!fill(response, table, { name, type }, options)) return
    send(response)
  })
  return {
    address: `127.0.0.1:${port}`,
    queries: (only) => asked.filter((one) => only === undefined || one === only),
    set: (name, type, answer) => {
      const types = table.get(name) ?? new Map<string, ZoneAnswer>()
      table.set(name, types.set(type, answer))
    },
    close: () => {
      closed = true
      return close()
    },
  }
}

const typeNames: Readonly<Record<number, RecordType>> = {
  1: 'A',
  5: 'CNAME',
  12: 'PTR',
  15: 'MX',
  28: 'AAAA',
}
const recordTypes: readonly RecordType[] = ['A', 'AAAA', 'MX', 'CNAME']

type Table = Map<string, Map<string, ZoneAnswer>>

const isAnswer = (zone: Zones[string]): zone is ZoneAnswer =>
  typeof zone === 'string' || Array.isArray(zone) || 'records' in zone

const tableOf = (zones: Zones): Table =>
  new Map(
    Object.entries(zones).map(([name, zone]) => [
      name,
      new Map<string, ZoneAnswer>(
        isAnswer(zone)
          ? recordTypes.filter((type) => type !== 'CNAME').map((type) => [type, zone])
          : Object.entries(zone),
      ),
    ]),
  )

/** Writes the answer. Returns false if there is nothing to send. */
const fill = (
  response: Packet,
  table: Table,
  question: { name: string; type: string },
  { ttlSeconds = ttlSecondsDefault, negativeTtlSeconds = ttlSecondsDefault }: DnsServerOptions,
): boolean => {
  let { name } = question
  for (let hops = 0; hops < aliasesMax; hops++) {
    const types = table.get(name)
    const alias = recordsOf(types?.get('CNAME'), ttlSeconds)
    const answer =
      alias === null ? (types?.get(question.type) ?? (types === undefined ? 'not_found' : 'no_data')) : null
    if (answer === 'silence') return false
    if (answer === 'servfail' || answer === 'refused') {
      response.header.rcode = answer === 'servfail' ? Packet.RCODE.SERVFAIL : Packet.RCODE.REFUSED
      return true
    }
    const found = alias ?? recordsOf(answer ?? undefined, ttlSeconds)
    if (found === null) {
      if (answer === 'not_found') response.header.rcode = Packet.RCODE.NXDOMAIN
      if (negativeTtlSeconds !== null) response.authorities.push(startOfAuthority(name, negativeTtlSeconds))
      return true
    }
    const type = alias === null ? question.type : 'CNAME'
    for (const record of found.records) response.answers.push(resource(name, type, record, found.ttlSeconds))
    const [target] = found.records
    if (alias === null || typeof target !== 'string') return true
    name = target
  }
  return true
}

const recordsOf = (answer: ZoneAnswer | undefined, ttlSeconds: number) => {
  if (answer === undefined || typeof answer === 'string') return null
  return 'records' in answer ? answer : { records: answer, ttlSeconds }
}

const resource = (name: string, type: string, record: string | Mx, ttl: number) => {
  const envelope = new Packet.Resource(name, Packet.TYPE.A, Packet.CLASS.IN, ttl)
  if (typeof record !== 'string') return Object.assign(envelope, record, { type: Packet.TYPE.MX })
  if (type === 'PTR') return Object.assign(envelope, { type: Packet.TYPE.PTR, domain: record })
  if (type === 'CNAME') return Object.assign(envelope, { type: Packet.TYPE.CNAME, domain: record })
  return Object.assign(envelope, { type: type === 'A' ? Packet.TYPE.A : Packet.TYPE.AAAA, address: record })
}

const startOfAuthority = (name: string, minimum: number) =>
  Object.assign(new Packet.Resource(name, Packet.TYPE.SOA, Packet.CLASS.IN, minimum), {
    primary: 'ns.test',
    admin: 'admin.test',
    serial: 1,
    refresh: 3600,
    retry: 3600,
    expiration: 3600,
    minimum,
  })

type Handle = (request: Packet, send: (response: Packet) => void, overUdp: boolean) => void

/** UDP and TCP must share a port, but the port that the system picks for TCP might already be in use for UDP. */
const listen = async (handle: Handle): Promise<{ port: number; close: () => Promise<void> }> => {
  for (let attempt = 1; ; attempt++) {
    const tcp = createTCPServer((request, send) => handle(request, send, false))
    const udp = createUDPServer((request, send) => handle(request, send, true))
    const connections = new Set<Socket>()
    tcp.on('connection', (socket: Socket) => {
      connections.add(socket)
      socket.on('error', () => socket.destroy())
      socket.on('close', () => connections.delete(socket))
    })
    tcp.listen(0, '127.0.0.1')
    await once(tcp, 'listening')
    const address = tcp.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    const close = async (): Promise<void> => {
      for (const socket of connections) socket.destroy()
      await Promise.all([once(tcp.close(), 'close'), once(udp.close(), 'close')])
    }
    try {
      udp.bind(port, '127.0.0.1')
      await once(udp, 'listening')
      return { port, close }
    } catch (error) {
      tcp.close()
      if (attempt === portAttemptsMax) throw error
    }
  }
}
