import { randomInt } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { getServers } from 'node:dns'
import { isIP, isIPv6, type Socket, connect as tcpConnect } from 'node:net'
import { within } from '../concurrency/deadline.ts'
import {
  badResponse,
  type DnsAnswer,
  type DnsQuestion,
  type DnsResponse,
  type DnsType,
  decodeResponse,
  encodeQuestion,
} from './dns-message.ts'

/**
 * Sends one question to recursive resolvers. The cache is in `dns.ts`.
 *
 * Every attempt has its own socket, so both the port and the id are random. The socket is connected, so that the kernel drops packets from other
 * addresses. A truncated answer is requested again over TCP. After SERVFAIL or REFUSED, the next server is asked, but this server is not asked again.
 */
type DnsServer = { readonly address: string; readonly port: number }

/** The number of rounds. In each round, the servers that have not answered yet are asked. */
const roundsMax = 2
const serversMax = 3
/** The maximum size of a reply over TCP. A list of mail exchangers needs less than a tenth of this. */
const replyOctetsMax = 16_384
const dnsPort = 53

/**
 * Parses servers (`ip`, `ip:port` or `[ipv6]:port`), at most three. For null, returns the system's servers. Throws a TypeError for any other text.
 */
export const dnsServers = (texts: readonly string[] | null): readonly DnsServer[] => {
  if (texts?.length === 0) throw new TypeError('at least one DNS server is needed')
  return (texts ?? getServers()).slice(0, serversMax).map((text) => {
    const [, bracketed, plain, portText] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(text) ?? []
    const address = isIP(text) === 0 ? (bracketed ?? plain ?? '') : text
    const port = Number((isIP(text) === 0 ? portText : undefined) ?? dnsPort)
    if (isIP(address) === 0 || port < 1 || port > 65_535)
      throw new TypeError(`"${text}" is not a DNS server such as 192.0.2.53 or [2001:db8::53]:5353`)
    return { address, port }
  })
}

const silence = { kind: 'failed', code: 'ETIMEOUT' } as const satisfies DnsAnswer

/** `attemptTimeoutMs` is the time limit for one server, and `deadlineMs` the limit for all servers together. */
type Patience = { readonly attemptTimeoutMs: number; readonly deadlineMs: number }

/** Never throws. Errors are `failed`: EBADNAME if the name is not a host name, and ETIMEOUT if no server answers within `deadlineMs`. */
export const askServers = async (
  servers: readonly DnsServer[],
  name: string,
  type: DnsType,
  { attemptTimeoutMs, deadlineMs }: Patience,
): Promise<DnsAnswer> => {
  const deadline = performance.now() + deadlineMs
  const refusing = new Set<DnsServer>()
  let failure: DnsAnswer = silence
  for (let round = 0; round < roundsMax; round++) {
    for (const server of servers) {
      if (refusing.has(server)) continue
      const timeoutMs = Math.min(attemptTimeoutMs, deadline - performance.now())
      if (timeoutMs <= 0) return failure
      const answer = await askServer(server, { id: randomInt(0x10000), name, type }, timeoutMs)
      if (answer.kind !== 'failed') return answer
      // An error from one server is more informative than a timeout of another.
      if (answer.code === 'ETIMEOUT') continue
      refusing.add(server)
      failure = answer
    }
  }
  return failure
}

const askServer = async (server: DnsServer, question: DnsQuestion, timeoutMs: number): Promise<DnsAnswer> => {
  const query = encodeQuestion(question)
  if (query === null) return { kind: 'failed', code: 'EBADNAME' }
  const deadline = performance.now() + timeoutMs
  const leftMs = (): number => Math.max(1, deadline - performance.now())
  try {
    const response = await overUdp(server, question, query, leftMs())
    if (response.kind !== 'truncated') return response
    const whole = await overTcp(server, question, query, leftMs())
    return whole.kind === 'truncated' ? badResponse : whole
  } catch (error) {
    return {
      kind: 'failed',
      code: error instanceof Error && 'code' in error ? String(error.code) : 'EBADRESP',
    }
  }
}

/** Asks one server. Rejects with the socket's error. */
type Ask = (
  server: DnsServer,
  question: DnsQuestion,
  query: Buffer,
  timeoutMs: number,
) => Promise<DnsResponse>

const overUdp: Ask = async ({ address, port }, question, query, timeoutMs) => {
  const { promise: answered, resolve, reject } = Promise.withResolvers<DnsResponse>()
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4')
  socket.on('error', reject)
  socket.on('message', (message) => {
    const response = decodeResponse(message, question)
    if (response !== null) resolve(response)
  })
  socket.connect(port, address, () => socket.send(query))
  try {
    return await within(answered, { waitMs: timeoutMs }, () => silence)
  } finally {
    socket.close()
  }
}

const overTcp: Ask = async ({ address, port }, question, query, timeoutMs) => {
  const socket = tcpConnect({ host: address, port })
  const length = Buffer.alloc(2)
  length.writeUInt16BE(query.length)
  socket.write(Buffer.concat([length, query]))
  try {
    return await within(readReply(socket, question), { waitMs: timeoutMs }, () => silence)
  } finally {
    socket.destroy()
  }
}

const readReply = async (socket: Socket, question: DnsQuestion): Promise<DnsResponse> => {
  let received = Buffer.alloc(0)
  for await (const bytes of socket) {
    received = Buffer.concat([received, bytes])
    if (received.length < 2) continue
    const octets = received.readUInt16BE(0)
    if (octets > replyOctetsMax) break
    if (received.length >= octets + 2)
      return decodeResponse(received.subarray(2, octets + 2), question) ?? badResponse
  }
  return badResponse
}
