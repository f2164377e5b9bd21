import dns from 'node:dns'
import net, { connect, createServer, type Socket } from 'node:net'
import { createMailboxProbe } from '../../src/capabilities/email-validation/mailbox/probe/probe.ts'
import { listen, startSmtpServer } from '../support/smtp-servers.ts'
import { type BenchOptions, median, type Row, ratioRow } from './row.ts'

/**
 * Mailbox checks at one mail server 40 ms away, ten at a time: ours with its session limits, against
 * deep-email-validator's own code, which asks one recipient in a connection of its own. The rates and breakers that protect
 * providers are off on our side: only the dialogue is compared.
 */

const roundTripMs = 40
const concurrency = 10
/** One of five recipients does not exist. */
const missing = /^[^@]*[05]@/

export const mailbox = async ({ rounds, seconds, begin, report }: BenchOptions): Promise<Row[]> => {
  const server = await startSmtpServer({
    recipient: (address) =>
      missing.test(address) || !address.startsWith('name') ? '550 5.1.1 no such user' : '250 2.1.5 ok',
  })
  const distant = await startDistance(server.port, roundTripMs)
  const rival = await loadRival(distant.port)
  const rates = {
    ours: [] as number[],
    fresh: [] as number[],
    theirs: [] as number[],
  }
  const durationMs = seconds * 1_000
  begin()
  try {
    for (let round = 0; round < rounds; round++) {
      const reused = openProbe(distant.port, {})
      const fresh = openProbe(distant.port, {
        sessionsPerAddressMax: concurrency,
        transactionsPerSessionMax: 1,
      })
      const ours = await measure(reused.check, durationMs)
      const alone = await measure(fresh.check, durationMs)
      const theirs = await measure(rival.check, durationMs)
      await Promise.all([reused.close(), fresh.close()])
      rates.ours.push(ours.perSecond)
      rates.fresh.push(alone.perSecond)
      rates.theirs.push(theirs.perSecond)
      report(
        `mailbox: ours ${ours.perSecond.toFixed(1)}/s (p50 ${ours.p50Ms.toFixed(0)} ms, p99 ${ours.p99Ms.toFixed(0)} ms), ` +
          `ours without reuse ${alone.perSecond.toFixed(1)}/s, theirs ${theirs.perSecond.toFixed(1)}/s (p50 ` +
          `${theirs.p50Ms.toFixed(0)} ms); simultaneous connections ${server.openMax()}`,
      )
    }
  } finally {
    rival.restore()
    await distant.close()
    await server.close()
  }
  const row = (what: string, measured: readonly number[], least: number): Row =>
    ratioRow(what, {
      measured: median(measured),
      against: median(rates.theirs),
      ratio: median(measured.map((rate, i) => rate / (rates.theirs[i] ?? Number.NaN))),
      unit: '/s',
      bound: { least },
    })
  return [
    row('mailbox checks, 40 ms away, 10 at a time, against deep-email-validator', rates.ours, 4),
    row('the same, a session for each check', rates.fresh, 0.5),
  ]
}

type Check = (name: string) => Promise<void>
type Measured = { readonly perSecond: number; readonly p50Ms: number; readonly p99Ms: number }

const openProbe = (
  port: number,
  bounds: { sessionsPerAddressMax?: number; transactionsPerSessionMax?: number },
): { check: Check; close: () => Promise<void> } => {
  const probe = createMailboxProbe({
    port,
    helo: 'probe.example.net',
    mailFrom: '<>',
    clock: Date.now,
    recipientOf: () => 'qzv7m2xk4t9w3h8r5n6b',
    logger: { debug: () => undefined },
    bounds: { checksPerSecond: 1e6, checksBurst: 1e6, ...bounds },
  })
  const targets = [{ exchange: 'mx.example.com', addresses: ['127.0.0.1'] }]
  return {
    close: () => probe.close(),
    check: async (name) => {
      const address = {
        normalized: `${name}@example.com`,
        localPart: name,
        domain: 'example.com',
        asciiDomain: 'example.com',
        smtputf8: false,
        quoted: false,
        domainLiteral: false,
      }
      const { outcome, catchAll } = await probe.probe(address, { targets })
      const expected = missing.test(`${name}@`) ? 'mailbox_not_found' : 'accepted'
      if (outcome !== expected || catchAll === true) throw new Error(`ours: ${name} is ${outcome}`)
    },
  }
}

/** The package dials port 25 of the host that DNS names: both lead to the server here, and nothing else is changed. */
const loadRival = async (port: number): Promise<{ check: Check; restore: () => void }> => {
  const { validate } = await import('deep-email-validator')
  const { createConnection } = net
  const { resolveMx } = dns
  // They are looked up on these objects at each call; our own imports of single functions are not affected.
  Object.assign(dns, {
    resolveMx: (
      _domain: string,
      done: (error: null, records: { exchange: string; priority: number }[]) => void,
    ) => setImmediate(() => done(null, [{ exchange: 'mx.example.com', priority: 10 }])),
  })
  Object.assign(net, { createConnection: () => createConnection({ port, host: '127.0.0.1', noDelay: true }) })
  return {
    check: async (name) => {
      const { valid } = await validate({
        email: `${name}@example.com`,
        sender: 'probe@example.net',
        validateRegex: false,
        validateTypo: false,
        validateDisposable: false,
        validateMx: true,
        validateSMTP: true,
      })
      if (valid === missing.test(`${name}@`)) throw new Error(`theirs: ${name} is ${valid}`)
    },
    restore: () => {
      Object.assign(dns, { resolveMx })
      Object.assign(net, { createConnection })
    },
  }
}

const measure = async (check: Check, durationMs: number): Promise<Measured> => {
  const startedAt = performance.now()
  const timesMs: number[] = []
  let next = 0
  const worker = async (): Promise<void> => {
    while (performance.now() - startedAt < durationMs) {
      const askedAt = performance.now()
      await check(`name${next++}`)
      timesMs.push(performance.now() - askedAt)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, worker))
  const elapsedMs = performance.now() - startedAt
  timesMs.sort((a, b) => a - b)
  const at = (share: number): number => timesMs[Math.floor(share * (timesMs.length - 1))] ?? Number.NaN
  return { perSecond: (timesMs.length * 1_000) / elapsedMs, p50Ms: at(0.5), p99Ms: at(0.99) }
}

/**
 * A server some milliseconds away: every octet takes half a round trip. The proxy accepts immediately, so the time of a TCP handshake
 * is added before the upstream is dialled: as on a real link, the greeting arrives two round trips after the dial.
 */
const startDistance = async (
  port: number,
  roundTrip: number,
): Promise<{ port: number; close: () => Promise<void> }> => {
  const sockets = new Set<Socket>()
  const half = roundTrip / 2
  const listener = createServer((client) => {
    client.pause()
    setTimeout(() => {
      const upstream = connect({ port, host: '127.0.0.1', noDelay: true })
      const forward = (from: Socket, to: Socket): void => {
        from.on('data', (octets) => setTimeout(() => to.write(octets), half))
        from.on('end', () => setTimeout(() => to.end(), half))
        from.on('error', () => to.destroy())
        from.on('close', () => {
          sockets.delete(from)
          setTimeout(() => to.destroy(), half)
        })
      }
      sockets.add(client).add(upstream)
      client.setNoDelay(true)
      forward(client, upstream)
      forward(upstream, client)
      client.resume()
    }, roundTrip + half)
  })
  const proxyPort = await listen(listener)
  return {
    port: proxyPort,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}
