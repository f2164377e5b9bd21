import { isIP } from 'node:net'
import { deadlineSignal } from '../../../concurrency/deadline.ts'
import type { Dns } from '../../../egress/dns.ts'
import type { DnsRecord } from '../../../egress/dns-message.ts'
import type { EgressGuard } from '../../../egress/guard.ts'
import { hostsOf, isLocalhost, type ResolveHost } from '../../../egress/hosts.ts'
import type { MxEvidence, MxRecord, MxTarget } from '../evidence.ts'
import { providerOf } from './mail-providers.ts'

/**
 * Finds the hosts that accept a domain's mail, and the addresses to which we may connect (RFC 5321 §5.1, RFC 7505). Callers must use these
 * addresses and must not resolve the names again.
 *
 * A temporary failure is never reported as a missing domain. If a name cannot be resolved now but may have addresses, the answer is
 * `dns_error` and not `unroutable` or `no_mail_server`.
 */
export type MailExchangers = {
  /** `asciiDomain` as A-labels. Never throws. */
  find(asciiDomain: string): Promise<MxEvidence>
}

const searchDeadlineMsDefault = 5_000
/** The maximum number of MX records that are used of one domain. Records with higher priority values are ignored. */
const recordsMax = 10
const targetsMax = 3
const addressesPerTargetMax = 4

type Search = {
  readonly domain: string
  readonly resolveHost: ResolveHost
  readonly guard: EgressGuard
  readonly signal: AbortSignal
}

/** `random` returns numbers in [0, 1): exchangers of equal priority are tried in random order (RFC 5321 §5.1). */
export const createMailExchangers = ({
  dns,
  guard,
  random,
  searchDeadlineMs = searchDeadlineMsDefault,
}: {
  dns: Dns
  guard: EgressGuard
  random: () => number
  searchDeadlineMs?: number
}): MailExchangers => {
  const resolveHost = hostsOf(dns)
  return {
    find: async (asciiDomain) => {
      const signal = deadlineSignal(searchDeadlineMs)
      const search: Search = { domain: asciiDomain.toLowerCase(), resolveHost, guard, signal }
      if (!isHostName(search.domain))
        return { kind: 'unroutable', implicit: true, records: [], provider: null }
      const evidence = await findWithin(search, dns, random)
      const late = evidence.kind === 'dns_error' && evidence.code === 'ECANCELLED'
      return late ? { kind: 'dns_error', code: 'ETIMEOUT' } : evidence
    },
  }
}

const findWithin = async (search: Search, dns: Dns, random: () => number): Promise<MxEvidence> => {
  const answer = await dns.resolve(search.domain, 'MX', { signal: search.signal })
  if (answer.kind === 'failed') return { kind: 'dns_error', code: answer.code }
  if (answer.kind === 'not_found') return { kind: 'domain_not_found' }
  if (answer.kind !== 'records') return findImplicit(search)
  const named = answer.records.filter(({ value }) => value !== '')
  // A null MX together with real MX records violates RFC 7505 §3 and is ignored.
  if (named.length === 0) return { kind: 'null_mx' }
  const records = named.toSorted(byPriority).slice(0, recordsMax).map(recordOf)
  const evidence = await findExplicit(search, records, shuffledWithinPriority(records, random))
  // Exchangers beyond `recordsMax` were not looked up and may have addresses.
  return evidence.kind === 'unroutable' && named.length > recordsMax
    ? { kind: 'dns_error', code: 'ETOOMANY' }
    : evidence
}

const findImplicit = async (search: Search): Promise<MxEvidence> => {
  const target = await locate(search.domain, search)
  if (target.addresses.length === 0) {
    if (target.code !== null) return { kind: 'dns_error', code: target.code }
    if (!target.exists) return { kind: 'no_mail_server' }
  }
  return evidenceOf(search.domain, [], [target])
}

const findExplicit = async (
  search: Search,
  records: readonly MxRecord[],
  inOrder: readonly MxRecord[],
): Promise<MxEvidence> => {
  const usable: Located[] = []
  let code: string | null = null
  for (let from = 0; from < inOrder.length && usable.length < targetsMax; from += targetsMax) {
    const some = inOrder.slice(from, from + targetsMax)
    for (const target of await Promise.all(some.map(({ exchange }) => locate(exchange, search)))) {
      if (target.addresses.length > 0) usable.push(target)
      else code ??= target.code
    }
  }
  if (usable.length === 0 && code !== null) return { kind: 'dns_error', code }
  return evidenceOf(null, records, usable.slice(0, targetsMax))
}

/** `implicitly` is the domain if it has no MX records, otherwise null. */
const evidenceOf = (
  implicitly: string | null,
  records: readonly MxRecord[],
  located: readonly Located[],
): MxEvidence => {
  const first = records[0]
  const hosts = first === undefined ? [] : records.filter(({ priority }) => priority === first.priority)
  const named = implicitly === null ? hosts.map(({ exchange }) => exchange) : [implicitly]
  const evidence = {
    implicit: implicitly !== null,
    records,
    provider: named.map(providerOf).find((provider) => provider !== null) ?? null,
  }
  const targets: MxTarget[] = located
    .filter(({ addresses }) => addresses.length > 0)
    .map(({ exchange, addresses }) => ({ exchange, addresses }))
  return targets.length === 0 ? { kind: 'unroutable', ...evidence } : { kind: 'found', ...evidence, targets }
}

type Located = MxTarget & {
  /** Whether the host has addresses, including addresses to which we may not connect. */
  readonly exists: boolean
  /** The resolver's error, if addresses may be missing because of it. */
  readonly code: string | null
}

const locate = async (exchange: string, { resolveHost, guard, signal }: Search): Promise<Located> => {
  if (!isHostName(exchange)) return { exchange, addresses: [], exists: true, code: null }
  const { addresses, code } = await resolveHost(exchange, signal)
  const permitted = addresses.filter((address) => guard.mayDial(address)).slice(0, addressesPerTargetMax)
  return { exchange, addresses: permitted, exists: addresses.length > 0, code }
}

/**
 * Whether we may look up a name. Literals (RFC 5321 §5.1), `localhost` and names with octets that host names do not contain are refused, even
 * if the guard exempts their addresses.
 */
const isHostName = (name: string): boolean =>
  isIP(name) === 0 && !isLocalhost(name) && /^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}$/.test(name)

const recordOf = ({ value, priority }: DnsRecord): MxRecord => ({ exchange: value, priority })

/** Records with equal priority are ordered by name, so that a domain's records have the same order in every answer. */
const byPriority = (a: DnsRecord, b: DnsRecord): number =>
  a.priority - b.priority || (a.value < b.value ? -1 : a.value > b.value ? 1 : 0)

const shuffledWithinPriority = (records: readonly MxRecord[], random: () => number): MxRecord[] =>
  records
    .map((record) => ({ record, lot: random() }))
    .sort((a, b) => a.record.priority - b.record.priority || a.lot - b.lot)
    .map(({ record }) => record)
