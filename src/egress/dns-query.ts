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
 * One question to recursive resolvers over the network. It has no cache and keeps no state: `dns.ts` has those.
 *
 * Every attempt has its own socket, which gives it a random port in addition to the random id. The socket is connected to the server, so that
 * the kernel drops packets from anywhere else. A truncated answer is requested again over TCP. A server that answers
 * SERVFAIL or REFUSED has answered: the next server is asked, and the same one is not asked again.
 */
type DnsServer = { readonly address: string; readonly port: number }

/** Rounds over the servers that did not answer. */
const roundsMax = 2
const serversMax = 3
/** For a reply over TCP. No domain's mail exchangers need a tenth of it. */
const replyOctetsMax = 16_384
const dnsPort = 53

/**
 * The servers to ask, the first three of them: `ip`, `ip:port` or `[ipv6]:port`. Null means the system's. Throws a TypeError naming a text that
 * is none of these.
 */
export const dnsServers = (texts: readonly string[] | null): readonly DnsServer[] => {
  if (texts?.length === 0) throw new TypeError('there has to be a DNS server')
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

/** `attemptTimeoutMs` is how long one server may take to answer, `deadlineMs` how long all of them together. */
type Patience = { readonly attemptTimeoutMs: number; readonly deadlineMs: number }

/**
 * The servers' answer, in at most `deadlineMs`. Never throws: an error is `failed`, with EBADNAME for a text that is not a
 * host name, and ETIMEOUT when none of them answered.
 */
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
      // An error from one server is more informative than the timeout of another.
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

/** Rejects with the error of the socket. */
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
