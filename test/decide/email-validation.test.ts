/** The decision table of e-mail validation: one row per line, and the first match decides. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { emailValidationResult } from '../../src/capabilities/email-validation/contract.ts'
import {
  companyApplies,
  decide,
  type EmailEvidence,
  verdictOf,
} from '../../src/capabilities/email-validation/decide.ts'
import type {
  EmailAddress,
  ListEvidence,
  MailboxEvidence,
  MailboxOutcome,
  MxEvidence,
} from '../../src/capabilities/email-validation/evidence.ts'
import { emailValidationFacts } from '../../src/events/email-validation.ts'

const hmac = 'q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA'

const address: EmailAddress = {
  normalized: 'ada@example.com',
  localPart: 'ada',
  domain: 'example.com',
  asciiDomain: 'example.com',
  smtputf8: false,
  quoted: false,
  domainLiteral: false,
}
const lists: ListEvidence = {
  disposable: false,
  roleBased: false,
  freeProvider: false,
  privacyRelay: false,
  subaddress: null,
  didYouMean: null,
  registrableDomain: 'example.com',
  routable: true,
}
const mx: MxEvidence = {
  kind: 'found',
  implicit: false,
  records: [{ exchange: 'mx.example.com', priority: 10 }],
  targets: [{ exchange: 'mx.example.com', addresses: ['192.0.2.1'] }],
  provider: null,
}
const mailbox: MailboxEvidence = {
  outcome: 'accepted',
  connected: true,
  catchAll: false,
  code: 250,
  enhancedCode: '2.1.5',
  retryAfterSeconds: null,
}
const accepted: EmailEvidence = {
  parsed: { valid: true, address },
  lists,
  mx,
  disposableExchange: false,
  mailbox,
}
const replied = (outcome: MailboxOutcome, more: Partial<MailboxEvidence> = {}): EmailEvidence => ({
  ...accepted,
  mailbox: { ...mailbox, outcome, catchAll: null, ...more },
})
const notProbed = { mailbox: null }

const table: [row: number, signal: string, evidence: EmailEvidence, verdict: string, score: number][] = [
  [
    1,
    'no address at all',
    { ...accepted, parsed: { valid: false, reason: 'no_at_sign' }, lists: null, mx: null, ...notProbed },
    'invalid / invalid_syntax',
    0,
  ],
  [
    2,
    'an address literal',
    {
      ...accepted,
      parsed: { valid: true, address: { ...address, domainLiteral: true } },
      mx: null,
      ...notProbed,
    },
    'invalid / domain_not_routable',
    0,
  ],
  [
    2,
    'a special-use domain',
    { ...accepted, lists: { ...lists, routable: false }, mx: null, ...notProbed },
    'invalid / domain_not_routable',
    0,
  ],
  [
    3,
    'NXDOMAIN',
    { ...accepted, mx: { kind: 'domain_not_found' }, ...notProbed },
    'invalid / domain_not_found',
    0,
  ],
  [4, 'null MX', { ...accepted, mx: { kind: 'null_mx' }, ...notProbed }, 'invalid / null_mx', 0],
  [
    5,
    'no MX and no address',
    { ...accepted, mx: { kind: 'no_mail_server' }, ...notProbed },
    'invalid / no_mail_server',
    0,
  ],
  [
    6,
    'targets with unreachable addresses',
    {
      ...accepted,
      mx: { kind: 'unroutable', implicit: false, records: mx.records, provider: null },
      ...notProbed,
    },
    'invalid / mx_unroutable',
    0,
  ],
  [
    7,
    'SERVFAIL',
    { ...accepted, mx: { kind: 'dns_error', code: 'ESERVFAIL' }, ...notProbed },
    'unknown / dns_error',
    40,
  ],
  [
    8,
    'a disposable domain',
    { ...accepted, lists: { ...lists, disposable: true }, ...notProbed },
    'risky / disposable',
    10,
  ],
  [
    8,
    'a disposable exchange',
    { ...accepted, disposableExchange: true, ...notProbed },
    'risky / disposable',
    10,
  ],
  [9, 'no server to ask', { ...accepted, ...notProbed }, 'unknown / probe_not_supported', 50],
  [10, 'no connection', replied('no_connect', { connected: false }), 'unknown / no_connect', 40],
  [10, 'no answer in time', replied('timeout'), 'unknown / timeout', 40],
  [11, 'a full mailbox', replied('mailbox_full'), 'risky / mailbox_full', 30],
  [12, 'greylisting', replied('greylisted'), 'unknown / greylisted', 40],
  [12, 'another 4xx', replied('temporary_failure'), 'unknown / temporary_failure', 40],
  [12, '252', replied('cannot_verify'), 'unknown / cannot_verify', 40],
  [13, 'a refusal of us', replied('blocked'), 'unknown / blocked', 40],
  [13, 'no SMTPUTF8', replied('smtputf8_unsupported'), 'unknown / smtputf8_unsupported', 40],
  [14, 'no such mailbox', replied('mailbox_not_found'), 'invalid / mailbox_not_found', 0],
  [14, 'a disabled mailbox', replied('mailbox_disabled'), 'invalid / mailbox_disabled', 0],
  [15, 'every recipient is accepted', replied('accepted', { catchAll: true }), 'risky / catch_all', 60],
  [
    16,
    'not known whether every recipient is accepted',
    replied('accepted'),
    'risky / catch_all_undetermined',
    55,
  ],
  [17, 'accepted, and a random recipient refused', accepted, 'valid / accepted', 95],
  [
    17,
    'the same for a role address',
    { ...accepted, lists: { ...lists, roleBased: true } },
    'valid / accepted',
    85,
  ],
]

describe('the decision table', () => {
  test.each(table)('row %i: %s', (row, _signal, evidence, verdict, score) => {
    const judged = verdictOf(evidence)
    expect({ ...judged, verdict: `${judged.status} / ${judged.subStatus}` }).toMatchObject({
      row,
      verdict,
      score,
    })
  })

  test('every row is reached', () => {
    expect([...new Set(table.map(([row]) => row))]).toEqual(Array.from({ length: 17 }, (_, n) => n + 1))
  })

  test('4.1.1 an address is valid only if the server accepts the recipient and refuses a random one, no matter what other evidence shows', () => {
    const outcomes = Object.values(table).flatMap(([, , { mailbox: seen }]) => (seen === null ? [] : [seen]))
    fc.assert(
      fc.property(
        fc.constantFrom(...table.map(([, , { mx: seen }]) => seen)),
        fc.constantFrom(null, ...outcomes),
        fc.record({
          disposable: fc.boolean(),
          roleBased: fc.boolean(),
          freeProvider: fc.boolean(),
          routable: fc.boolean(),
        }),
        fc.boolean(),
        (seenMx, seenMailbox, seenLists, disposableExchange) => {
          const { status } = verdictOf({
            ...accepted,
            mx: seenMx,
            mailbox: seenMailbox,
            lists: { ...lists, ...seenLists },
            disposableExchange,
          })
          if (status === 'valid') expect(seenMailbox).toMatchObject({ outcome: 'accepted', catchAll: false })
        },
      ),
      { seed: 4_1_1 },
    )
  })

  test('a temporary failure, a refusal of our server, a time-out or a DNS error never makes an address invalid', () => {
    const unsure = table.filter(([row]) => [7, 10, 12, 13].includes(row))
    expect(unsure.map(([, , evidence]) => verdictOf(evidence).status)).toEqual(unsure.map(() => 'unknown'))
  })
})

describe('answer and facts', () => {
  const findings = {
    ...accepted,
    addressHmac: hmac,
    company: null,
    checkedAt: '2026-11-21T10:00:00.000Z',
    cached: false,
  }
  const request = { email: 'Ada@Example.com', companyRequested: false }

  test.each(table)('for row %i (%s) fit the contract and agree', (row, _signal, evidence) => {
    const decision = decide({ ...findings, ...evidence }, request)
    if ('refusal' in decision) throw new Error('refused')
    expect(emailValidationResult.parse(decision.result)).toEqual(decision.result)
    expect(emailValidationFacts.parse(decision.facts)).toEqual(decision.facts)
    expect(decision.facts).toMatchObject({
      decision_row: row,
      status: decision.result.status,
      sub_status: decision.result.sub_status,
      company_status: 'not_requested',
    })
    expect(decision.result.billing.billable, 'before the tariff has decided').toBe(false)
  })

  test('the address is in the answer but not in the facts', () => {
    const decision = decide(findings, request)
    if ('refusal' in decision) throw new Error('refused')
    expect(JSON.stringify(decision.facts)).not.toMatch(/ada@|"ada"/i)
    expect(decision.facts).toMatchObject({ domain: 'example.com', address_hmac: hmac })
  })

  test('a check that could not be made has the value null, never false', () => {
    const decision = decide(
      { ...findings, ...replied('timeout', { connected: false, code: null, enhancedCode: null }) },
      request,
    )
    if ('refusal' in decision) throw new Error('refused')
    expect(decision.result.checks.smtp).toEqual({
      attempted: true,
      connected: false,
      deliverable: null,
      catch_all: null,
      mailbox_full: null,
      disabled: null,
      code: null,
      enhanced_code: null,
    })
  })

  test('a server that was never contacted counts as not attempted; a server that did not answer counts as attempted', () => {
    const smtpOf = (connected: boolean | null) => {
      const noReply = { connected, code: null, enhancedCode: null, retryAfterSeconds: 60 }
      const decision = decide({ ...findings, ...replied('temporary_failure', noReply) }, request)
      if ('refusal' in decision) throw new Error('refused')
      const { checks, sub_status, retry_after } = decision.result
      expect({ sub_status, retry_after }).toEqual({ sub_status: 'temporary_failure', retry_after: 60 })
      return checks.smtp
    }
    expect(smtpOf(null)).toMatchObject({ attempted: false, connected: null })
    expect(smtpOf(false)).toMatchObject({ attempted: true, connected: false })
  })

  test('at most 320 characters of the submitted text are returned', () => {
    const decision = decide(
      { ...findings, parsed: { valid: false, reason: 'too_long' }, lists: null, mx: null, mailbox: null },
      { email: 'x'.repeat(10_000), companyRequested: true },
    )
    if ('refusal' in decision) throw new Error('refused')
    expect(decision.result.email).toHaveLength(320)
    expect(decision.result.company_status).toBe('not_applicable')
  })
})

describe('company enrichment', () => {
  const applies = (own: Partial<ListEvidence>, evidence: EmailEvidence = accepted): boolean =>
    companyApplies({ ...lists, ...own }, verdictOf(evidence))

  test('is made for business domains', () => {
    expect(applies({})).toBe(true)
    expect(applies({ freeProvider: true })).toBe(false)
    expect(applies({ disposable: true })).toBe(false)
    expect(applies({ privacyRelay: true })).toBe(false)
    expect(applies({ registrableDomain: null })).toBe(false)
  })

  test('is made for valid and risky addresses, but not for disposable ones, and never for unknown ones', () => {
    const applying = table.filter(([, , evidence]) => applies({}, evidence)).map(([row]) => row)
    expect([...new Set(applying)]).toEqual([11, 15, 16, 17])
  })
})
