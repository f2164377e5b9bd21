import { randomInt } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { getServers } from 'node:dns'
import { isIP, isIPv6, connect as tcpConnect } from 'node:net'
import {
  type DnsAnswer,
  type DnsQuestion,
  type DnsResponse,
  type DnsType,
  decodeResponse,
  encodeQuestion,
} from './dns-message.ts'

/**
 * One question to recursive resolvers over the network. No cache and no memory: `dns.ts` has those.
 *
 * Every attempt has a socket of its own, hence a random port besides the random id, connected to the server, so that
 * the kernel drops what comes from anywhere else. A truncated answer is asked for again over TCP. A server that says
 * SERVFAIL or REFUSED has answered: the next one is asked, but not the same again.
 */
export type DnsServer = { readonly address: string; readonly port: number }

/** Rounds over the servers that were silent. */
const roundsMax = 2
const serversMax = 3
/** Of a reply over TCP. Nobody's mail exchangers need a tenth of it. */
const replyOctetsMax = 16_384
const aliasQuestionsMax = 4
const dnsPort = 53

/**
 * The servers to ask, the first three of them: `ip`, `ip:port` or `[ipv6]:port`. Null takes the system's. Throws a TypeError naming what is
 * none of these.
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

/** `attemptTimeoutMs` is how long one server may be silent, `deadlineMs` how long all of them together. */
export type Patience = { readonly attemptTimeoutMs: number; readonly deadlineMs: number }

/**
 * What the servers say, in at most `deadlineMs`. Never throws: what goes wrong is `failed`, EBADNAME for what is no
 * host name, ETIMEOUT when everybody was silent.
 */
export const askServers = async (
  servers: readonly DnsServer[],
  name: string,
  type: DnsType,
  { attemptTimeoutMs, deadlineMs }: Patience,
): Promise<DnsAnswer> => {
  const patience = { attemptTimeoutMs, deadline: performance.now() + deadlineMs }
  let asked = name
  let ttlSeconds = 0x7fffffff
  for (let questions = 0; questions < aliasQuestionsMax; questions++) {
    const response = await askInTurn(servers, asked, type, patience)
    if (response.kind === 'alias') {
      asked = response.name
      ttlSeconds = Math.min(ttlSeconds, response.ttlSeconds)
    } else {
      if (response.kind !== 'records') return response
      return { ...response, ttlSeconds: Math.min(ttlSeconds, response.ttlSeconds) }
    }
  }
  return { kind: 'failed', code: 'EBADRESP' }
}

type Answered = Exclude<DnsResponse, { kind: 'truncated' }>

const askInTurn = async (
  servers: readonly DnsServer[],
  name: string,
  type: DnsType,
  { attemptTimeoutMs, deadline }: { attemptTimeoutMs: number; deadline: number },
): Promise<Answered> => {
  const refusing = new Set<DnsServer>()
  let failure: Answered = { kind: 'failed', code: 'ETIMEOUT' }
  for (let round = 0; round < roundsMax; round++) {
    for (const server of servers) {
      if (refusing.has(server)) continue
      const timeoutMs = Math.min(attemptTimeoutMs, deadline - performance.now())
      if (timeoutMs <= 0) return failure
      const response = await askServer(server, { id: randomInt(0x10000), name, type }, timeoutMs)
      if (response.kind !== 'failed') return response
      // A server's own word says more than another's silence.
      if (response.code === 'ETIMEOUT') continue
      refusing.add(server)
      failure = response
    }
  }
  return failure
}

const askServer = async (server: DnsServer, question: DnsQuestion, timeoutMs: number): Promise<Answered> => {
  const query = encodeQuestion(question)
  if (query === null) return { kind: 'failed', code: 'EBADNAME' }
  const startedAt = performance.now()
  const response = await overUdp(server, question, query, timeoutMs)
  if (response.kind !== 'truncated') return response
  const leftMs = Math.max(1, timeoutMs - (performance.now() - startedAt))
  const whole = await overTcp(server, question, query, leftMs)
  return whole.kind === 'truncated' ? { kind: 'failed', code: 'EBADRESP' } : whole
}

type Ask = (
  server: DnsServer,
  question: DnsQuestion,
  query: Buffer,
  timeoutMs: number,
) => Promise<DnsResponse>

const failed = (error: NodeJS.ErrnoException): DnsResponse => ({
  kind: 'failed',
  code: error.code ?? 'EBADRESP',
})

const overUdp: Ask = ({ address, port }, question, query, timeoutMs) => {
  const { promise, resolve } = Promise.withResolvers<DnsResponse>()
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4')
  let settled = false
  const settle = (response: DnsResponse): void => {
    if (settled) return
    settled = true
    clearTimeout(timer)
    socket.close()
    resolve(response)
  }
  const timer = setTimeout(() => settle({ kind: 'failed', code: 'ETIMEOUT' }), timeoutMs)
  socket.on('error', (error) => settle(failed(error)))
  socket.on('message', (message) => {
    const response = decodeResponse(message, question)
    if (response !== null) settle(response)
  })
  socket.connect(port, address, () => {
    if (!settled) socket.send(query, (error) => error && settle(failed(error)))
  })
  return promise
}

const overTcp: Ask = ({ address, port }, question, query, timeoutMs) => {
  const { promise, resolve } = Promise.withResolvers<DnsResponse>()
  const socket = tcpConnect({ host: address, port })
  const settle = (response: DnsResponse): void => {
    clearTimeout(timer)
    socket.destroy()
    resolve(response)
  }
  const timer = setTimeout(() => settle({ kind: 'failed', code: 'ETIMEOUT' }), timeoutMs)
  let received = Buffer.alloc(0)
  socket.on('error', (error) => settle(failed(error)))
  socket.on('close', () => settle({ kind: 'failed', code: 'EBADRESP' }))
  socket.on('data', (bytes) => {
    received = Buffer.concat([received, bytes])
    if (received.length < 2) return
    const length = received.readUInt16BE(0)
    if (length > replyOctetsMax) return settle({ kind: 'failed', code: 'EBADRESP' })
    if (received.length < length + 2) return
    settle(decodeResponse(received.subarray(2, length + 2), question) ?? { kind: 'failed', code: 'EBADRESP' })
  })
  const prefix = Buffer.alloc(2)
  prefix.writeUInt16BE(query.length)
  socket.write(Buffer.concat([prefix, query]))
  return promise
}
