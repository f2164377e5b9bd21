import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { within } from '../../concurrency/deadline.ts'
import { openRedis, reasonOf as redisReasonOf } from '../../concurrency/redis.ts'
import type { Config } from '../../config.ts'
import { type Check, fault, ok, reasonOf, type Told, warning } from './finding.ts'

/** What this host is to others, and what it needs of them: its ports, Redis, and its name where mail servers look it up. */

/** Where a role of this configuration listens. */
export type Listening = {
  readonly variable: 'API_PORT' | 'DASHBOARD_PORT' | 'METRICS_PORT'
  readonly host: string
  readonly port: number
}

/** Whose process listens somewhere. `another`: of another installation of this service. `stranger`: of something else. */
export type Listener = 'own' | 'another' | 'stranger'

/** `asks`: asks what answers there whose it is. */
export const networkChecks = (
  config: Config,
  places: readonly Listening[],
  asks: (place: Listening) => Promise<Listener>,
): readonly Check[] => [
  { about: 'ports', look: () => ports(places, asks) },
  { about: 'Redis', look: () => (config.REDIS_URL === undefined ? [] : redis(config.REDIS_URL)) },
  { about: 'mail name', look: () => mailName(config) },
]

const connectMaxMs = 1_000
const redisMaxMs = 4_000

const ports = async (
  places: readonly Listening[],
  asks: (place: Listening) => Promise<Listener>,
): Promise<Told[]> => {
  const told = await Promise.all(
    places
      .filter(({ port }) => port !== 0)
      .map(async (place): Promise<Told> => {
        const { variable, host, port } = place
        if (!(await isTaken(place))) return ok(`${port} (${variable}) is free: nothing listens there`)
        const listener = await asks(place)
        if (listener === 'own') return ok(`${port} (${variable}) is this service's`)
        return fault(
          listener === 'another'
            ? `${port} (${variable}) on ${host} is taken by a process of this service with another SECRET_KEY, or of an earlier release`
            : `${port} (${variable}) on ${host} is taken, and what listens there does not answer as this service`,
          `Stop what listens there (ss -ltnp 'sport = :${port}' names it), or set ${variable} to another port.`,
        )
      }),
  )
  return told.length > 0 ? told : [ok('any free port is taken')]
}

/** Every address of the machine is also reached at its loopback address. */
export const reachedAt = (host: string): string =>
  host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host

const isTaken = ({ host, port }: Listening): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ host: reachedAt(host), port, timeout: connectMaxMs })
    const settle = (taken: boolean) => (): void => {
      socket.destroy()
      resolve(taken)
    }
    socket.once('connect', settle(true)).once('error', settle(false)).once('timeout', settle(false))
  })

const redis = async (url: string): Promise<Told> => {
  const remedy =
    'See that it runs and that REDIS_URL is right. Until then each process counts rate limits for itself; money does not depend on it.'
  const client = await openRedis({ url, name: 'doctor', script: 'return 1' })
  let last: unknown = new Error(`no answer within ${redisMaxMs / 1_000} s`)
  client.on('error', (error) => {
    last = error
  })
  try {
    const answers = await within(
      once(client, 'ready').then(() => client.ping()),
      { waitMs: redisMaxMs },
      () => null,
    )
    return answers === 'PONG'
      ? ok('it answers')
      : warning(`it does not answer: ${redisReasonOf(last)}`, remedy)
  } catch (error) {
    return warning(`it does not answer: ${redisReasonOf(error)}`, remedy)
  } finally {
    client.disconnect()
  }
}

const dnsMaxMs = 2_000
const addressesMax = 4
const noName = new Set(['ENOTFOUND', 'ENODATA'])

/** Forward and reverse: many servers refuse a client whose name and address do not lead to each other. */
const mailName = async ({ EMAIL_PROBE, SMTP_HELO, DNS_SERVERS }: Config): Promise<Told | Told[]> => {
  if (EMAIL_PROBE === 'off') return ok('mail servers are not asked (EMAIL_PROBE=off)')
  const name = SMTP_HELO ?? hostname()
  if (name.startsWith('[')) return ok(`${name} is an address, and no name to look up`)
  const remedy =
    "Set SMTP_HELO to a name whose address is the public one of this host, and have its network's reverse DNS (PTR) lead back to that name."
  const resolver = new Resolver({ timeout: dnsMaxMs, tries: 1 })
  if (DNS_SERVERS !== undefined) resolver.setServers([...DNS_SERVERS])
  const asked = async (question: Promise<string[]>): Promise<string[] | Error> =>
    question.catch((error: unknown) => {
      if (error instanceof Error && 'code' in error && noName.has(String(error.code))) return []
      return error instanceof Error ? error : new Error(String(error))
    })
  const forward = await Promise.all([asked(resolver.resolve4(name)), asked(resolver.resolve6(name))])
  const failed = forward.find((one) => one instanceof Error)
  const addresses = forward.flatMap((one) => (one instanceof Error ? [] : one)).slice(0, addressesMax)
  if (addresses.length === 0 && failed !== undefined)
    return warning(
      `${name} was not looked up, for no DNS server answers: ${reasonOf(failed)}`,
      'See DNS_SERVERS and the network. Without DNS every e-mail address stays unknown; where mailboxes are not to be asked for, EMAIL_PROBE=off.',
    )
  if (addresses.length === 0) return warning(`${name} has no address in DNS`, remedy)
  const back = await Promise.all(
    addresses.map(async (address) => ({ address, names: await asked(resolver.reverse(address)) })),
  )
  const wrong = back.filter(
    ({ names }) =>
      names instanceof Error ||
      !names.some((one) => one.toLowerCase().replace(/\.$/, '') === name.toLowerCase()),
  )
  const [first] = wrong
  if (first === undefined) return ok(`${name} and ${addresses.join(', ')} lead to each other`)
  const leads =
    first.names instanceof Error || first.names.length === 0 ? 'to no name' : `to ${first.names[0]}`
  return warning(`${name} has the address ${first.address}, which leads back ${leads}`, remedy)
}
