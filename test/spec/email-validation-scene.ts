/** Domains whose mail servers run on loopback, and the expected results of calls about their mailboxes. */
import { connect, createServer, type Server } from 'node:net'
import { afterAll, beforeAll, expect } from 'vitest'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import {
  type EmailValidationResult,
  emailValidationResult,
} from '../../src/capabilities/email-validation/contract.ts'
import { type DnsServerDouble, startDnsServer } from '../support/dns-server.ts'
import {
  type Answer,
  type AnswerAndFacts,
  type House,
  openHouse,
  type Partner,
  type PartnerOptions,
  send,
} from '../support/house.ts'
import { closedPort, type SmtpScript, type SmtpServer, startSmtpServer } from '../support/smtp-servers.ts'

export type MailWorld = {
  readonly dns: DnsServerDouble
  /** The settings of a house that uses these servers. */
  readonly environment: Readonly<Record<string, string>>
  /** Starts a mail server at an address of its own, so that its behaviour does not affect another server's reputation. */
  host(domain: string, script?: SmtpScript): Promise<SmtpServer & { readonly address: string }>
  /** Adds a domain whose only mail server is not running. */
  ruin(domain: string): void
  close(): Promise<void>
}

const openMailWorld = async (): Promise<MailWorld> => {
  const dns = await startDnsServer({})
  const port = await closedPort()
  const servers: SmtpServer[] = []
  const doors: Server[] = []
  let hosts = 1
  const locate = (domain: string): string => {
    const address = `127.0.0.${++hosts}`
    dns.set(domain, 'MX', [{ priority: 10, exchange: `mx.${domain}` }])
    dns.set(`mx.${domain}`, 'A', [address])
    return address
  }
  return {
    dns,
    environment: {
      DNS_SERVERS: dns.address,
      SMTP_PORT: String(port),
      SMTP_HELO: 'probe.example.net',
      SMTP_ALLOW: '127.0.0.0/8',
    },
    host: async (domain, script) => {
      const server = await startSmtpServer(script)
      servers.push(server)
      const address = locate(domain)
      doors.push(await openDoor({ host: address, port, to: server.port }))
      return { ...server, address }
    },
    ruin: (domain) => void locate(domain),
    close: async () => {
      await Promise.all(servers.map((server) => server.close()))
      await Promise.all(doors.map((door) => new Promise((resolve) => door.close(resolve))))
      await dns.close()
    },
  }
}

/** Forwards connections from an address and port to a server. SMTP_PORT is the same for all servers, so each server has its own address. */
const openDoor = async ({ host, port, to }: { host: string; port: number; to: number }): Promise<Server> => {
  const door = createServer((socket) => {
    const inside = connect(to, '127.0.0.1')
    for (const [one, other] of [
      [socket, inside],
      [inside, socket],
    ] as const) {
      one.on('error', () => other.destroy())
      one.on('close', () => other.destroy())
      one.pipe(other)
    }
  })
  await new Promise<void>((resolve, reject) => {
    door.once('error', reject)
    door.listen(port, host, resolve)
  })
  return door
}

/** Opens a house and its mail servers, and keeps them open until the test file ends. `begin` receives both before the first test runs. */
export const mailHouse = (
  begin: (opened: { house: House; world: MailWorld }) => Promise<void> | void,
  { logger }: Pick<Parameters<typeof openHouse>[0] & object, 'logger'> = {},
): void => {
  let world: MailWorld | undefined
  let house: House | undefined
  beforeAll(async () => {
    world = await openMailWorld()
    house = await openHouse({ environment: world.environment, ...(logger === undefined ? {} : { logger }) })
    await begin({ house, world })
  })
  afterAll(async () => {
    await house?.close()
    await world?.close()
  })
}

/** A script for a mail server that accepts only these local parts. */
export const mailboxes =
  (...known: string[]): NonNullable<SmtpScript['recipient']> =>
  (mailbox) =>
    known.includes(mailbox.slice(0, mailbox.lastIndexOf('@'))) ? '250 2.1.5 ok' : '550 5.1.1 no such user'

export const path = '/v1/email/validate'

/** Creates a partner whose limit per second no test reaches. */
export const emailPartner = (house: House, options: PartnerOptions = {}): Promise<Partner> =>
  house.partner({
    permissions: ['email_validation'],
    ...options,
    limits: { email_validations_per_second: 10_000, ...options.limits },
  })

export const validate = (
  house: House,
  partner: Partner,
  email: string,
  { company, headers }: { company?: boolean; headers?: Readonly<Record<string, string>> } = {},
): Promise<AnswerAndFacts> =>
  house.post(
    partner,
    path,
    { email, ...(company === undefined ? {} : { include_company_data: company }) },
    headers,
  )

/** Sends a call without reading the ledger, so that several calls can be made together. */
export const sendValidate = (
  { apiUrl }: Pick<House, 'apiUrl'>,
  { apiKey }: Partner,
  email: string,
): Promise<Answer> =>
  send(`${apiUrl}${path}`, {
    headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
    body: { email },
  })

/** Returns the result of a 200, and expects exactly the contract's members. */
export const resultOf = (answer: Answer): EmailValidationResult => {
  expect({ status: answer.status, text: answer.text }).toMatchObject({ status: 200 })
  const read = emailValidationResult.parse(answer.body.result)
  // Parsing drops members that are not in the contract.
  expect(answer.body.result).toStrictEqual(read)
  return read
}

export type ExpectedFacts = {
  readonly status: string
  readonly sub_status: string
  readonly decision_row: number
  readonly company_status?: string
  readonly domain: string | null
}

const keyUsed = ({ keyId }: Partner, facts: ExpectedFacts) => ({
  key_id: keyId,
  capability: 'email_validation',
  outcome: 'answered',
  facts: {
    kind: 'email_validation',
    company_status: 'not_requested',
    ...facts,
    address_hmac: expect.stringMatching(/^[\w-]{43}$/),
  },
})

/** The ledger events of a free validation. */
export const freeValidation = (partner: Partner, facts: ExpectedFacts) => [
  {
    type: 'KeyUsed',
    data: {
      ...keyUsed(partner, facts),
      free_by: { rule: `email_validation.${facts.status}`, rule_version: 1 },
    },
  },
]

export type ExpectedLine = {
  readonly sku: string
  readonly amount: string
  readonly rule: string
  readonly rule_version: number
}

export const validLine: ExpectedLine = {
  sku: 'email_validation',
  amount: '1',
  rule: 'email_validation.valid',
  rule_version: 1,
}
export const companyLine: ExpectedLine = {
  sku: 'company_data',
  amount: '2',
  rule: 'email_validation.company_found',
  rule_version: 2,
}

/** The ledger events of a charged validation: its facts, directly followed by the charge. */
export const chargedValidation = (
  partner: Partner,
  facts: ExpectedFacts,
  { lines, amount }: { lines: readonly ExpectedLine[]; amount: string },
) => [
  { type: 'KeyUsed', data: keyUsed(partner, facts) },
  {
    type: 'CreditCharged',
    data: {
      charge_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      sku: lines.length === 1 ? lines[0]?.sku : expect.any(String),
      amount,
      lines,
      rule: lines[0]?.rule,
      rule_version: lines[0]?.rule_version,
      price_book_version: 1,
      price_book_digest: priceBookOf(defaultPriceBook).digest,
      allocations: [{ grant_id: expect.any(String), amount }],
    },
  },
]

/** Stores a company as an import does. */
export const knowCompany = (house: House, domain: string, name: string): Promise<unknown> =>
  house.query(
    `insert into companies (domain, name, legal_name, website, industry, size_range, employee_count, founded_year,
       locality, region, country, country_code, source, source_updated_at, preference, tie_break)
     values ($1, $2, $2 || ' Ltd', 'https://' || $1 || '/', 'widgets', '51-200', 120, 1987,
       'Leeds', 'England', 'United Kingdom', 'GB', 'a data set', '2026-01-02T03:04:05Z', 0, '')`,
    [domain, name],
  )

/** Makes queries about companies fail as if the database were shutting down. Returns a function that undoes this. */
export const takeCompaniesAway = async (house: House): Promise<() => Promise<void>> => {
  await house.query(`
    create function companies_away() returns boolean language plpgsql volatile as
    $$ begin raise exception 'terminating connection' using errcode = '57P01'; end $$;
    alter table companies rename to companies_kept;
    create view companies as select * from companies_kept where companies_away();
    grant select on companies to public`)
  return async () => {
    await house.query(
      'drop view companies; alter table companies_kept rename to companies; drop function companies_away()',
    )
  }
}
