/**
 * The mail hosts for these tests, on loopback: Postfix with Postgrey, Exim, and Unbound, which resolves their names. A host NAME
 * is `mx.NAME.example.net` and accepts mail for `NAME.example.net`. Some domains use a host with another name.
 */
import { randomInt } from 'node:crypto'
import { freePort } from '../../support/free-port.ts'
import { startExim } from './exim.ts'
import { type Postfix, type PostfixServer, startPostfix } from './postfix.ts'
import { startPostgrey } from './postgrey.ts'
import type { ServerProcess } from './process.ts'
import { startUnbound } from './unbound.ts'

export type MailHosts = {
  /** The port of all mail servers. */
  readonly port: number
  /** The resolver's address, as in `DNS_SERVERS`. */
  readonly resolver: string
  readonly postfix: Postfix
  readonly exim: ServerProcess
  close(): Promise<void>
}

/** The mailbox that exists at every host. */
export const known = 'known'
/** Hosts with many mailboxes also have `known-0`, `known-1` and so on. */
export const knownMax = 25
/** Postgrey defers a client for this long. */
export const greylistedSeconds = 1
/** The delay of replies, which is longer than clients wait. */
const tarpitSeconds = 20
/** The number of MX records of one domain: more than fit into a datagram. */
const exchangersMany = 60

const zone = 'example.net'
const longLabel = 'x'.repeat(40)

type AddressOf = (host: string) => string

const postfixServers = (addressOf: AddressOf, port: number): PostfixServer[] => {
  const server = (name: string, settings: Record<string, string> = {}): PostfixServer => ({
    name,
    address: addressOf(name),
    settings,
  })
  const recipients = (...restrictions: string[]) => ({
    smtpd_recipient_restrictions: restrictions.join(', '),
  })
  const ours = 'reject_unauth_destination'
  const postgrey = `check_policy_service inet:${addressOf('postgrey')}:${port}`
  const replies = [
    `{ full@answering.${zone} = 452 4.2.2 The email account is over quota }`,
    `{ full-for-good@answering.${zone} = 552 5.2.2 Mailbox is full / Blocks limit exceeded }`,
    `{ disabled@answering.${zone} = 550 5.2.1 Mailbox disabled, not accepting messages }`,
  ]
  return [
    server('postfix'),
    server('second'),
    server('unwanted'),
    server('answering', recipients(`check_recipient_access inline:{ ${replies.join(', ')} }`, ours)),
    // The second server is configured as in Postgrey's documentation, so it also defers missing mailboxes.
    server('greylisting', recipients(ours, 'reject_unlisted_recipient', postgrey)),
    server('greylisting-all', recipients(ours, postgrey)),
    server('blocking', recipients(`reject_rbl_client dnsbl.${zone}`, ours)),
    server('strict-relay', { smtpd_relay_restrictions: ours }),
    server('strict-helo', { smtpd_helo_restrictions: 'reject_unknown_helo_hostname' }),
    server('put-off', { smtpd_helo_restrictions: 'reject_unknown_helo_hostname' }),
    server('strict-sender', { smtpd_sender_restrictions: 'reject_unknown_sender_domain' }),
    server('tarpit', recipients(`sleep ${tarpitSeconds}`, ours)),
    server('slow-greeting', { smtpd_delay_reject: 'no', smtpd_client_restrictions: 'sleep 3' }),
    server('tls-only', { smtpd_tls_security_level: 'encrypt' }),
    // TLS in an obsolete version that clients no longer use.
    server('tls-only-old', { smtpd_tls_security_level: 'encrypt', smtpd_tls_mandatory_protocols: 'TLSv1' }),
    server('tls-old', { smtpd_tls_security_level: 'may', smtpd_tls_protocols: 'TLSv1' }),
    server('ascii', { smtputf8_enable: 'no' }),
    server('busy'),
    server('one-at-a-time', { smtpd_discard_ehlo_keywords: 'pipelining' }),
    server('one-connection', { smtpd_client_connection_count_limit: '1' }),
    server('ten-recipients', { smtpd_client_recipient_rate_limit: '10' }),
    { ...server('postscreen', { postscreen_greet_action: 'enforce' }), postscreen: true },
    {
      ...server('postscreen-deep', { postscreen_greet_wait: '1s', postscreen_pipelining_enable: 'yes' }),
      postscreen: true,
    },
  ]
}

/** Domains for which Postfix accepts mail, in addition to those named after its servers. */
const domainsBeside = ['implicit', 'alias', 'mx-is-alias', 'first-down', 'many', 'xn--bcher-kva']
const domainsWithMany = ['busy', 'one-at-a-time', 'one-connection', 'ten-recipients']

const postfixSettings = (servers: readonly PostfixServer[]): Record<string, string> => {
  const domains = [...servers.map(({ name }) => name), ...domainsBeside]
  const mailboxes = [
    ...domains.map((domain) => `${known}@${domain}`),
    ...domainsWithMany.flatMap((domain) =>
      Array.from({ length: knownMax }, (_, n) => `${known}-${n}@${domain}`),
    ),
    ...['full', 'full-for-good', 'disabled'].map((name) => `${name}@answering`),
    'jörg@postfix',
    'jörg@xn--bcher-kva',
    '@catch-all',
  ]
  return {
    virtual_alias_domains: [...domains, 'catch-all'].map((domain) => `${domain}.${zone}`).join(', '),
    virtual_alias_maps: `inline:{ ${mailboxes.map((mailbox) => `{ ${mailbox}.${zone} = ${known}@postfix.${zone} }`).join(', ')} }`,
    smtpd_tls_loglevel: '1',
  }
}

const eximConfiguration = [
  `domainlist ours = exim.${zone} : exim-catch-all.${zone}`,
  'rfc1413_query_timeout = 0s',
  'acl_smtp_rcpt = recipients',
  'begin acl',
  'recipients:',
  '  require message = relay not permitted',
  '          domains = +ours',
  '  deny message = 552 Mailbox is over its quota',
  '       local_parts = full',
  '  defer message = Temporary local problem - please try later',
  '        local_parts = later',
  '  require verify = recipient',
  '  accept',
  'begin routers',
  'all:',
  '  driver = accept',
  `  domains = exim-catch-all.${zone}`,
  '  transport = mailboxes',
  'some:',
  '  driver = accept',
  '  domains = +ours',
  `  local_parts = ${known} : jörg : \\N^${known}-[0-9]+$\\N`,
  '  transport = mailboxes',
  'begin transports',
  'mailboxes:',
  '  driver = appendfile',
  '  file = /dev/null',
]

const zoneRecords = (hosts: readonly string[], addressOf: AddressOf): string[] => {
  const mx = (domain: string, ...hosts: string[]): string[] =>
    hosts.map((host, n) => `${domain}.${zone}. MX ${10 * (n + 1)} ${host}`)
  const at = (host: string): string => `mx.${host}.${zone}.`
  const many = Array.from({ length: exchangersMany }, (_, n) => `mx-${n}.${longLabel}.${zone}.`)
  return [
    ...hosts.flatMap((host) => [`${at(host)} A ${addressOf(host)}`, ...mx(host, at(host))]),
    ...mx('catch-all', at('postfix')),
    ...mx('foreign', at('postfix')),
    ...mx('foreign-for-good', at('strict-relay')),
    ...mx('xn--bcher-kva', at('postfix')),
    ...mx('exim-catch-all', at('exim')),
    ...mx('exim-foreign', at('exim')),
    ...mx('bogus', at('postfix')),
    `null-mx.${zone}. MX 0 .`,
    `implicit.${zone}. A ${addressOf('postfix')}`,
    `alias.${zone}. CNAME postfix.${zone}.`,
    ...mx('mx-is-alias', `mx-alias.${zone}.`),
    `mx-alias.${zone}. CNAME ${at('postfix')}`,
    ...mx('first-down', at('nobody'), at('second')),
    ...mx('all-down', at('nobody')),
    `no-mail.${zone}. TXT "no mail"`,
    ...mx('dangling', `no-such-host.${zone}.`),
    ...mx('literal', `${addressOf('postfix')}.`),
    ...mx('local', 'localhost.'),
    ...mx('many', ...many),
    `${many[0]} A ${addressOf('postfix')}`,
    `sender.${zone}. A 192.0.2.25`,
    `1.0.0.127.dnsbl.${zone}. A 127.0.0.2`,
    `1.0.0.127.dnsbl.${zone}. TXT "Listed, see https://dnsbl.${zone}/"`,
  ]
}

/** Starts all servers. If one fails, stops the others and throws. */
export const startMailHosts = async (): Promise<MailHosts> => {
  const port = await freePort()
  // The network is random, because a simultaneous run of this test on this machine needs a different one.
  const network = `127.${randomInt(16, 240)}.${randomInt(1, 250)}`
  const inNetwork: string[] = []
  const addressOf: AddressOf = (host) => {
    if (!inNetwork.includes(host)) inNetwork.push(host)
    return `${network}.${10 + inNetwork.indexOf(host)}`
  }
  const servers = postfixServers(addressOf, port)
  const resolver = addressOf('resolver')
  // The last host in this list has no server.
  const hosts = [...servers.map(({ name }) => name), 'exim', 'nobody']
  const started: ServerProcess[] = []
  const keep = async <Server extends ServerProcess>(starting: Promise<Server>): Promise<Server> => {
    const server = await starting
    started.push(server)
    return server
  }
  const starting = {
    unbound: keep(
      startUnbound({
        address: resolver,
        port,
        zone,
        records: zoneRecords(hosts, addressOf),
        refused: [`refused.${zone}`],
        silent: [`silent.${zone}`],
        bogus: [`bogus.${zone}`],
        dead: [`dead.${zone}`],
      }),
    ),
    postgrey: keep(startPostgrey({ address: addressOf('postgrey'), port, delaySeconds: greylistedSeconds })),
    postfix: keep(startPostfix({ port, resolver, settings: postfixSettings(servers), servers })),
    exim: keep(startExim({ address: addressOf('exim'), port, configuration: eximConfiguration })),
  }
  const close = async (): Promise<void> => {
    await Promise.all(started.splice(0).map((server) => server.close()))
  }
  const outcomes = await Promise.allSettled(Object.values(starting))
  const failures = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []))
  if (failures.length > 0) {
    await close()
    throw failures.length === 1 ? failures[0] : new AggregateError(failures, failures.join('\n'))
  }
  return {
    port,
    resolver: `${resolver}:${port}`,
    postfix: await starting.postfix,
    exim: await starting.exim,
    close,
  }
}
