/** The answers of email validation: Specification 4.1 and 8, with decisions 1, 4, 7, 9, 16 and 17. */
import { describe, expect, test } from 'vitest'
import type { Config } from '../../src/config.ts'
import type { House, Partner } from '../support/house.ts'
import type { SmtpScript } from '../support/smtp-servers.ts'
import {
  emailPartner,
  freeValidation,
  type MailWorld,
  mailboxes,
  mailHouse,
  path,
  resultOf,
  sendValidate,
  validate,
} from './email-validation-scene.ts'
import { bare, expectCredits, expectRefusedCall, jsonType, rateLimitsOf, ulid } from './wire.ts'

let world: MailWorld
let house: House
let partner: Partner

mailHouse(async (opened) => {
  ;({ house, world } = opened)
  partner = await emailPartner(house, { credits: '1000' })
})

const instant = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const notAsked = {
  attempted: false,
  connected: null,
  deliverable: null,
  catch_all: null,
  mailbox_full: null,
  disabled: null,
  code: null,
  enhanced_code: null,
}
const noMx = { found: false, null_mx: false, implicit: false, provider: null, records: [] }

describe('4.1 the answer', () => {
  test('has result, processing_time_ms and request_id, and nothing else', async () => {
    const answer = await validate(house, partner, 'nonsense')
    expect(answer.status).toBe(200)
    expect(Object.keys(answer.body)).toEqual(['result', 'processing_time_ms', 'request_id'])
    expect(answer.body.processing_time_ms).toBeGreaterThan(0)
    expect(answer.body.request_id).toMatch(ulid)
    expect(answer.headers.get('x-request-id')).toBe(answer.body.request_id)
    expect(answer.headers.get('content-type')).toBe(jsonType)
    expect(Object.keys(rateLimitsOf(answer))).toEqual(['second', 'minute', 'day'])
  })

  test('about a mailbox that its server accepts, while it refuses a random one, is valid and has every field', async () => {
    const server = await world.host('valid.example.com', { recipient: mailboxes('someone') })
    const result = resultOf(await validate(house, partner, 'someone@Valid.Example.COM'))
    expect(result).toEqual({
      email: 'someone@Valid.Example.COM',
      normalized: 'someone@valid.example.com',
      local_part: 'someone',
      domain: 'valid.example.com',
      ascii_domain: 'valid.example.com',
      status: 'valid',
      sub_status: 'accepted',
      score: 95,
      did_you_mean: null,
      checks: {
        syntax: { valid: true, reason: null, smtputf8: false, quoted: false, domain_literal: false },
        disposable: false,
        role_based: false,
        free_provider: false,
        privacy_relay: false,
        subaddress: null,
        mx: {
          found: true,
          null_mx: false,
          implicit: false,
          provider: null,
          records: [{ exchange: 'mx.valid.example.com', priority: 10 }],
        },
        smtp: {
          attempted: true,
          connected: true,
          deliverable: true,
          catch_all: false,
          mailbox_full: false,
          disabled: false,
          code: 250,
          enhanced_code: '2.1.5',
        },
      },
      company: null,
      company_status: 'not_requested',
      billing: { billable: true, validation_credits: '1', company_credits: '0' },
      cached: false,
      checked_at: instant,
      retry_after: null,
    })
    const [real, random = ''] = server.recipients()
    expect(real).toBe('someone@valid.example.com')
    expect(random).toMatch(/^[a-z0-9]{20}@valid\.example\.com$/)
    expect(server.conversations.flatMap(({ said }) => said).filter((line) => /^DATA/i.test(line))).toEqual([])
  })

  test('about a text that is not an address has every key, with null for everything that was not determined', async () => {
    const result = resultOf(await validate(house, partner, 'no-at-sign'))
    expect(result).toEqual({
      email: 'no-at-sign',
      normalized: null,
      local_part: null,
      domain: null,
      ascii_domain: null,
      status: 'invalid',
      sub_status: 'invalid_syntax',
      score: 0,
      did_you_mean: null,
      checks: {
        syntax: { valid: false, reason: 'no_at_sign', smtputf8: null, quoted: null, domain_literal: null },
        disposable: null,
        role_based: null,
        free_provider: null,
        privacy_relay: null,
        subaddress: null,
        mx: { found: null, null_mx: null, implicit: null, provider: null, records: [] },
        smtp: notAsked,
      },
      company: null,
      company_status: 'not_requested',
      billing: { billable: false, validation_credits: '0', company_credits: '0' },
      cached: false,
      checked_at: instant,
      retry_after: null,
    })
  })

  test('about an internationalized domain has both forms; DNS and servers are asked for the A-labels', async () => {
    const server = await world.host('xn--bcher-kva.com', { recipient: mailboxes('someone') })
    const answer = await validate(house, partner, 'someone@BÜCHER.com')
    expect(resultOf(answer)).toMatchObject({
      normalized: 'someone@bücher.com',
      domain: 'bücher.com',
      ascii_domain: 'xn--bcher-kva.com',
      status: 'valid',
    })
    expect(server.recipients()[0]).toBe('someone@xn--bcher-kva.com')
    const same = await validate(house, partner, 'someone@xn--bcher-kva.com')
    expect(resultOf(same).normalized).toBe('someone@bücher.com')
    const [one, other] = [answer, same].map(({ events }) => events[0]?.data.facts)
    expect(one).toEqual(other)
    expect(one).toMatchObject({ domain: 'xn--bcher-kva.com' })
  })
})

describe('decision 16: pasted addresses are read as they were meant', () => {
  test('an Idempotency-Key covers the body as it was sent', async () => {
    const headers = { 'idempotency-key': 'pasted-and-plain' }
    await validate(house, partner, 'nobody@nowhere.example.com', { headers })
    const { status, body } = await validate(house, partner, ' nobody@nowhere.example.com', { headers })
    expect({ status, code: body.code }).toEqual({ status: 422, code: 'IDEMP_001' })
  })
})

describe('decision 17: verdicts from DNS', () => {
  const cases: [string, () => void, string, number, Record<string, unknown>][] = [
    [
      'a domain that does not exist is invalid',
      () => undefined,
      'domain_not_found',
      3,
      { status: 'invalid', score: 0, mx: noMx },
    ],
    [
      'SERVFAIL is unknown, and the answer claims nothing about the exchangers',
      () => world.dns.set('dns-error.example.com', 'MX', 'servfail'),
      'dns_error',
      7,
      {
        status: 'unknown',
        score: 40,
        mx: { found: null, null_mx: null, implicit: null, provider: null, records: [] },
      },
    ],
  ]
  test.each(cases)('%s', async (_, prepare, subStatus, row, { mx, ...verdict }) => {
    prepare()
    const domain = `${subStatus.replaceAll('_', '-')}.example.com`
    const answer = await validate(house, partner, `someone@${domain}`)
    const result = resultOf(answer)
    expect(result).toMatchObject({ ...verdict, sub_status: subStatus, cached: false })
    expect(result.checks.mx).toEqual(mx)
    expect(result.checks.smtp).toEqual(notAsked)
    expect(bare(answer.events)).toEqual(
      freeValidation(partner, {
        status: result.status,
        sub_status: subStatus,
        decision_row: row,
        domain,
      }),
    )
  })

  test.each(['someone@[127.0.0.1]', 'someone@localhost'])(
    '%s is well-formed and never routable: no server is contacted',
    async (email) => {
      const asked = world.dns.queries().length
      const { status, sub_status, checks } = resultOf(await validate(house, partner, email))
      expect({ status, sub_status, syntax: checks.syntax.valid }).toEqual({
        status: 'invalid',
        sub_status: 'domain_not_routable',
        syntax: true,
      })
      expect(world.dns.queries()).toHaveLength(asked)
    },
  )

  test('a disposable domain is risky, and its mailbox is never checked', async () => {
    const server = await world.host('mailinator.com', { recipient: mailboxes('someone') })
    const { status, sub_status, score, checks } = resultOf(
      await validate(house, partner, 'someone@mailinator.com'),
    )
    expect({ status, sub_status, score }).toEqual({ status: 'risky', sub_status: 'disposable', score: 10 })
    expect(checks.disposable).toBe(true)
    expect(server.conversations).toHaveLength(0)
  })
})

type Said = {
  readonly subStatus: string
  readonly row: number
  readonly status: string
  readonly score: number
  readonly smtp: object
  readonly retryAfter?: number | null
}

describe('decision 17: verdicts from the mail server', () => {
  const asked = { ...notAsked, attempted: true, connected: true }
  const replies: [string, SmtpScript, Said][] = [
    [
      'yes to every mailbox: risky, a catch-all',
      {},
      {
        subStatus: 'catch_all',
        row: 15,
        status: 'risky',
        score: 60,
        smtp: {
          ...asked,
          deliverable: true,
          catch_all: true,
          mailbox_full: false,
          disabled: false,
          code: 250,
          enhanced_code: '2.1.5',
        },
      },
    ],
    [
      'try again later: unknown, with the time to retry',
      { recipient: () => '450 4.7.1 greylisted, try again in 5 minutes' },
      {
        subStatus: 'greylisted',
        row: 12,
        status: 'unknown',
        score: 40,
        smtp: { ...asked, code: 450, enhanced_code: '4.7.1' },
        retryAfter: 300,
      },
    ],
  ]
  test.each(replies)(
    '%s',
    async (name, script, { subStatus, row, status, score, smtp, retryAfter = null }) => {
      const domain = `says-${replies.findIndex(([one]) => one === name)}.example.com`
      await world.host(domain, script)
      const answer = await validate(house, partner, `someone@${domain}`)
      const result = resultOf(answer)
      expect(result).toMatchObject({ status, sub_status: subStatus, score, retry_after: retryAfter })
      expect(result.checks.smtp).toEqual(smtp)
      expect(answer.headers.get('credits-charged')).toBe('0')
      expect(result.billing).toEqual({ billable: false, validation_credits: '0', company_credits: '0' })
      expect(bare(answer.events)).toEqual(
        freeValidation(partner, { status, sub_status: subStatus, decision_row: row, domain }),
      )
    },
  )
})

describe('decision 16: the request', () => {
  test('REQ_002: without an email, or with null, the call is refused', async () => {
    for (const body of [{}, { email: null }, { Email: 'someone@valid.example.com' }])
      expectRefusedCall(
        await house.post(partner, path, body),
        partner,
        {
          status: 400,
          error: 'bad_request',
          code: 'REQ_002',
          details: { missing_parameter: 'email', parameter_type: 'string' },
        },
        'email_validation',
      )
  })

  test.each([
    ['email', 'a string', { email: ['someone@valid.example.com'] }],
    ['include_company_data', 'a boolean', { email: 'nonsense', include_company_data: 'true' }],
  ])('REQ_003: %s must be %s', async (parameter, expected, body) => {
    expectRefusedCall(
      await house.post(partner, path, body),
      partner,
      { status: 400, error: 'validation_error', code: 'REQ_003', details: { parameter, expected } },
      'email_validation',
    )
  })

  test.each(['', 'a@b@c'])('a malformed address is a 200 with the status invalid: %j', async (email) => {
    const answer = await validate(house, partner, email)
    const { status, sub_status } = resultOf(answer)
    expect({ status, sub_status }).toEqual({ status: 'invalid', sub_status: 'invalid_syntax' })
    expect(bare(answer.events)).toEqual(
      freeValidation(partner, {
        status: 'invalid',
        sub_status: 'invalid_syntax',
        decision_row: 1,
        domain: null,
      }),
    )
    expect(answer.headers.get('credits-charged')).toBe('0')
  })

  test('AUTH_002: a key without the permission email_validation is refused', async () => {
    const other = await house.partner({ permissions: ['ip_lookup'] })
    expectRefusedCall(
      await validate(house, other, 'nonsense'),
      other,
      {
        status: 403,
        error: 'forbidden',
        code: 'AUTH_002',
        details: { required_permission: 'email_validation' },
      },
      'email_validation',
    )
  })
})

const validateUnder = async (config: Partial<Config>, by: Partner, email: string) => {
  const before = (await house.eventsOf(by.organizationId)).length
  const app = await house.another({ config })
  try {
    const answer = await sendValidate({ apiUrl: String(app.apiUrl) }, by, email)
    return { ...answer, events: (await house.eventsOf(by.organizationId)).slice(before) }
  } finally {
    await app.close()
  }
}

test('with EMAIL_PROBE=off no server is contacted: verdicts that need a server are unknown, and free', async () => {
  const server = await world.host('probe-off.example.com', { recipient: mailboxes('someone') })
  const one = await emailPartner(house, { credits: '5' })
  const answer = await validateUnder({ EMAIL_PROBE: 'off' }, one, 'someone@probe-off.example.com')
  const { status, sub_status, score, checks } = resultOf(answer)
  expect({ status, sub_status, score }).toEqual({
    status: 'unknown',
    sub_status: 'probe_not_supported',
    score: 50,
  })
  expect(checks.smtp).toEqual(notAsked)
  expect(checks.mx.found).toBe(true)
  expectCredits(answer, '0', '5')
  expect(bare(answer.events)).toEqual(
    freeValidation(one, {
      status: 'unknown',
      sub_status: 'probe_not_supported',
      decision_row: 9,
      domain: 'probe-off.example.com',
    }),
  )
  expect(server.conversations).toHaveLength(0)
})

test('without SMTP_ALLOW an exchanger at a private address is invalid, mx_unroutable, and never contacted', async () => {
  const server = await world.host('inside.example.com', { recipient: mailboxes('someone') })
  const one = await emailPartner(house, { credits: '5' })
  const allowed = { SMTP_ALLOW: [], EGRESS_ALLOW: ['127.0.0.0/8'] }
  const answer = await validateUnder(allowed, one, 'someone@inside.example.com')
  expect(resultOf(answer)).toMatchObject({ status: 'invalid', sub_status: 'mx_unroutable' })
  expect(answer.events[0]?.data).toMatchObject({ facts: { decision_row: 6 } })
  expectCredits(answer, '0', '5')
  expect(server.conversations).toHaveLength(0)
})
