/** The mail hosts of a small world, on loopback: Postfix, Postgrey and Exim, and an Unbound that knows their names. */
import { randomInt } from 'node:crypto'
import { startExim } from './exim.ts'
import { freePort, type ServerProcess } from './process.ts'
import { type Postfix, type PostfixServer, startPostfix } from './postfix.ts'
import { startPostgrey } from './postgrey.ts'
import { startUnbound } from './unbound.ts'

export type MailHosts = {
  /** Of every mail server. */
  readonly port: number
  /** Of the resolver, as `DNS_SERVERS` has it. */
  readonly resolver: string
  readonly postfix: Postfix
  readonly exim: ServerProcess
  close(): Promise<void>
}

/** How long Postgrey defers. */
export const greylistedSeconds = 2
/** Longer than anybody waits for a reply. */
const tarpitSeconds = 20

/** Hosts are `NAME.example.net`, and so are the domains whose mail they take; a domain may name others. */
const zone = 'example.net'
const nobodyHost = 'nobody'
/** As many as no datagram holds. */
const exchangersMany = 60

const unauthorized = 'reject_unauth_destination'
const greylist = (resolver: string, port: number): string => `check_policy_service inet:${resolver}:${port}`
const replies = (domain: string, texts: Readonly<Record<string, string>>): string =>
  `inline:{ ${Object.entries(texts).map(([name, text]) => `{ ${name}@${domain} = ${text} }`).join(', ')} }`

/** The mailbox everybody has. */
export const known = 'known'

const postfixServers = (addressOf: (name: string) => string, postgreyPort: number): PostfixServer[] => {
  const server = (name: string, settings: Record<string, string> = {}, postscreen = false): PostfixServer => ({
    name,
    address: addressOf(name),
    settings,
    postscreen,
  })
  const postgrey = greylist(addressOf('postgrey'), postgreyPort)
  const restricted = (...restrictions: string[]) => ({
    smtpd_recipient_restrictions: restrictions.join(', '),
  })
  const encrypted = { smtpd_tls_security_level: 'encrypt' }
  return [
    server('postfix'),
    server('second'),
    server('unwanted'),
    server('answering', {
      ...restricted(
        `check_recipient_access ${replies('answering.example.net', {
          full: '452 4.2.2 The email account is over quota',
          'full-for-good': '552 5.2.2 Mailbox is full / Blocks limit exceeded / Inode limit exceeded',
          disabled: '550 5.2.1 Mailbox disabled, not accepting messages',
        })}`,
        unauthorized,
      ),
    }),
    // As documentation recommends it, and as most have it: the second defers those nobody has as well.
    server('greylisting', restricted(unauthorized, 'reject_unlisted_recipient', postgrey)),
    server('greylisting-all', restricted(unauthorized, postgrey)),
    server('blocking', restricted(`reject_rbl_client dnsbl.${zone}`, unauthorized)),
    server('strict-helo', { smtpd_helo_restrictions: 'reject_unknown_helo_hostname' }),
    server('strict-sender', { smtpd_sender_restrictions: 'reject_unknown_sender_domain' }),
    server('tarpit', restricted(`sleep ${tarpitSeconds}`, unauthorized)),
    server('slow-greeting', { smtpd_delay_reject: 'no', smtpd_client_restrictions: 'sleep 3' }),
    server('tls-only', encrypted),
    server('tls-impossible', { ...encrypted, smtpd_tls_mandatory_protocols: 'TLSv1' }),
    server('tls-broken', { smtpd_tls_security_level: 'may', smtpd_tls_protocols: 'TLSv1' }),
    server('ascii', { smtputf8_enable: 'no' }),
    server('one-connection', { smtpd_client_connection_count_limit: '1' }),
    server('five-recipients', { smtpd_client_recipient_rate_limit: '5' }),
    server('no-pipelining', { smtpd_discard_ehlo_keywords: 'pipelining' }),
    server('postscreen', { postscreen_greet_action: 'enforce' }, true),
    server('postscreen-deep', { postscreen_greet_wait: '1s', postscreen_pipelining_enable: 'yes' }, true),
  ]
}

/** Domains that are no host's own name. */
const records = (addressOf: (name: string) => string): string[] => {
  const mx = (domain: string, ...exchangers: string[]): string[] =>
    exchangers.map((exchanger, n) => `${domain}.${zone}. MX ${10 * (n + 1)} ${exchanger}`)
  const at = (name: string): string => `mx.${name}.${zone}.`
  return [
    ...mx('catch-all', at('postfix')),
    ...mx('foreign', at('postfix')),
    ...mx('bogus', at('postfix')),
    ...mx('null-mx', '.').map((record) => record.replace('MX 10', 'MX 0')),
    `implicit.${zone}. A ${addressOf('postfix')}`,
    `alias.${zone}. CNAME postfix.${zone}.`,
    ...mx('mx-is-alias', `mx-alias.${zone}.`),
    `mx-alias.${zone}. CNAME ${at('postfix')}`,
    ...mx('first-down', at(nobodyHost), at('second')),
    ...mx('all-down', at(nobodyHost)),
    `no-mail.${zone}. TXT "no mail"`,
    ...mx('dangling', `no-such-host.${zone}.`),
    ...mx('literal', `${addressOf('postfix')}.`),
    ...mx('local', 'localhost.'),
    ...mx('many', ...Array.from({ length: exchangersMany }, (_, n) => `mx-${n}.${'x'.repeat(40)}.${zone}.`)),
    `mx-0.${'x'.repeat(40)}.${zone}. A ${addressOf('postfix')}`,
    ...mx('exim-catch-all', at('exim')),
    ...mx('exim-foreign', at('exim')),
    `1.0.0.127.dnsbl.${zone}. A 127.0.0.2`,
    `1.0.0.127.dnsbl.${zone}. TXT "Listed by the test, see https://dnsbl.${zone}/"`,
    `sender.${zone}. A 192.0.2.25`,
  ]
}

const postfixDomains = ['implicit', 'alias', 'mx-is-alias', 'first-down', 'many']

const eximConfiguration = (directory: string): string[] => [
  `domainlist ours = exim.${zone} : exim-catch-all.${zone}`,
  'exim_user = Debian-exim',
  'never_users =',
  'rfc1413_query_timeout = 0s',
  'acl_smtp_rcpt = recipients',
  'begin acl',
  'recipients:',
  '  require message = relay not permitted',
  '          domains = +ours',
  '  require verify = recipient',
  '  deny message = 552 Mailbox is over its quota',
  '       local_parts = full',
  '  accept',
  'begin routers',
  'all:',
  '  driver = accept',
  `  domains = exim-catch-all.${zone}`,
  '  transport = mailboxes',
  'some:',
  '  driver = accept',
  '  domains = +ours',
  `  local_parts = ${known} : full : jörg : ^${known}-[0-9]+\\N$\\N`,
  '  transport = mailboxes',
  'begin transports',
  'mailboxes:',
  '  driver = appendfile',
  `  file = ${directory}/mailboxes/$local_part_data`,
  '  user = Debian-exim',
]

/** Starts them all, or ends those that were started and throws. */
export const startMailHosts = async (): Promise<MailHosts> => {
  // Somebody else's test on this machine has its own.
  const network = `127.${randomInt(16, 240)}.${randomInt(1, 250)}`
  const names: string[] = ['resolver', 'postgrey', nobodyHost, 'exim']
  const addressOf = (name: string): string => {
    if (!names.includes(name)) names.push(name)
    return `${network}.${10 + names.indexOf(name)}`
  }
  const port = await freePort()
  const servers = postfixServers(addressOf, port)
  const started: ServerProcess[] = []
  const keep = async <Server extends ServerProcess>(starting: Promise<Server>): Promise<Server> => {
    const server = await starting
    started.push(server)
    return server
  }
  const close = async (): Promise<void> => {
    await Promise.all(started.splice(0).map((server) => server.close()))
  }
  const hosts = [...servers.map(({ name }) => name), 'exim', nobodyHost]
  const ownDomains = servers.map(({ name }) => name)
  const everyDomain = [...ownDomains, ...postfixDomains].map((name) => `${name}.${zone}`)
  const knownNumbers = Array.from({ length: 25 }, (_, n) => `known-${n}@postfix.${zone}`)
  const mailboxes = [
    ...everyDomain.map((domain) => `${known}@${domain}`),
    ...knownNumbers,
    `full@answering.${zone}`,
    `full-for-good@answering.${zone}`,
    `disabled@answering.${zone}`,
    `jörg@postfix.${zone}`,
    `@catch-all.${zone}`,
  ]
  const starting = [
    keep(
      startUnbound({
        address: addressOf('resolver'),
        port,
        zone,
        records: [
          ...hosts.map((name) => `mx.${name}.${zone}. A ${addressOf(name)}`),
          ...hosts.map((name) => `${name}.${zone}. MX 10 mx.${name}.${zone}.`),
          ...records(addressOf),
        ],
        refused: [`refused.${zone}`],
        silent: [`silent.${zone}`],
        bogus: [`bogus.${zone}`],
        dead: [`dead.${zone}`],
      }),
    ),
    keep(startPostgrey({ address: addressOf('postgrey'), port, delaySeconds: greylistedSeconds })),
  ]
  const postfix = keep(
    startPostfix({
      port,
      resolver: addressOf('resolver'),
      settings: {
        virtual_alias_domains: [...everyDomain, `catch-all.${zone}`].join(', '),
        virtual_alias_maps: `inline:{ ${mailboxes.map((mailbox) => `{ ${mailbox} = ${known}@postfix.${zone} }`).join(', ')} }`,
      },
      servers,
    }),
  )
  const exim = keep(startExim({ addresses: [addressOf('exim')], port, configuration: eximConfiguration }))
  const outcomes = await Promise.allSettled([...starting, postfix, exim])
  const failed = outcomes.find((outcome) => outcome.status === 'rejected')
  if (failed !== undefined) {
    await close()
    throw failed.reason
  }
  return { port, resolver: `${addressOf('resolver')}:${port}`, postfix: await postfix, exim: await exim, close }
}
