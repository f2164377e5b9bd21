/** Specification 4.1 and 8: the answers, with decisions 1, 4, 7, 9, 16 and 17. */
import { describe, expect, test } from 'vitest'
import { type House, openHouse, type Partner } from '../support/house.ts'
import type { SmtpScript } from '../support/smtp-servers.ts'
import {
  emailPartner,
  freeValidation,
  type MailWorld,
  mailboxes,
  mailHouse,
  path,
  resultOf,
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

  test('about a mailbox its server accepts, while refusing a random one, is valid, with every field', async () => {
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

  test('about a text that is not an address has every key, with null for all that was not determined', async () => {
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

  test('repeats only the checked part of an endless text', async () => {
    const { email, status } = resultOf(
      await validate(house, partner, `${'a'.repeat(5_000)}@valid.example.com`),
    )
    expect(email).toHaveLength(320)
    expect(status).toBe('invalid')
  })

  test('about a role-based address is valid, with the flag and a lower score (decision 9)', async () => {
    await world.host('role.example.com', { recipient: mailboxes('sales') })
    const { status, score, checks } = resultOf(await validate(house, partner, 'sales@role.example.com'))
    expect({ status, score, roleBased: checks.role_based }).toEqual({
      status: 'valid',
      score: 85,
      roleBased: true,
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

  test('about a mailbox provider names the provider, and the tag of a subaddress', async () => {
    await world.host('gmail.com', { recipient: mailboxes('someone+lists') })
    const { status, checks } = resultOf(await validate(house, partner, 'someone+lists@gmail.com'))
    expect({ status, free: checks.free_provider, subaddress: checks.subaddress }).toEqual({
      status: 'valid',
      free: true,
      subaddress: 'lists',
    })
  })

  test('about a forwarding service that hides the person has a flag for it: it is not disposable', async () => {
    await world.host('duck.com', { recipient: mailboxes('someone') })
    const { status, checks } = resultOf(await validate(house, partner, 'someone@duck.com'))
    expect({ status, relay: checks.privacy_relay, disposable: checks.disposable }).toEqual({
      status: 'valid',
      relay: true,
      disposable: false,
    })
  })

  test('suggests the provider that was probably meant, and judges the address as sent', async () => {
    const answer = await validate(house, partner, 'someone@gmial.com')
    const { did_you_mean, sub_status } = resultOf(answer)
    expect({ did_you_mean, sub_status }).toEqual({
      did_you_mean: 'someone@gmail.com',
      sub_status: 'domain_not_found',
    })
  })
})

describe('decision 16: pasted addresses are read as they were meant', () => {
  const spellings = [
    '\u00A0someone@pasted.example.com\r\n',
    'some\u200Bone@pasted.example.com',
    'someone@pasted.example.com.',
    'someone\uFF20pasted\u3002example\uFF0Ecom',
  ]

  test('the server is asked for the plain address, the facts are the same, and the answer repeats the address as sent', async () => {
    const server = await world.host('pasted.example.com', { recipient: mailboxes('someone') })
    const plain = await validate(house, partner, 'someone@pasted.example.com')
    for (const email of spellings) {
      const answer = await validate(house, partner, email)
      expect(resultOf(answer)).toMatchObject({
        email,
        normalized: 'someone@pasted.example.com',
        status: 'valid',
        did_you_mean: null,
      })
      expect(answer.events[0]?.data.facts).toEqual(plain.events[0]?.data.facts)
    }
    const real = server.recipients().filter((mailbox) => !/^[a-z0-9]{20}@/.test(mailbox))
    expect(new Set(real)).toEqual(new Set(['someone@pasted.example.com']))
  })

  test('an Idempotency-Key covers the body as it was sent', async () => {
    const headers = { 'idempotency-key': 'pasted-and-plain' }
    await validate(house, partner, 'nobody@nowhere.example.com', { headers })
    const { status, body } = await validate(house, partner, ' nobody@nowhere.example.com', { headers })
    expect({ status, code: body.code }).toEqual({ status: 422, code: 'IDEMP_001' })
  })

  test.each([
    ['x@gmail,com', 'x@gmail.com'],
    ['x@gmail..com', 'x@gmail.com'],
    ['x@@gmail.com', 'x@gmail.com'],
    ['mailto:ada@acme.com', 'ada@acme.com'],
    ['Ada Byron <ada@acme.com>', 'ada@acme.com'],
  ])('%s is not an address, and was probably meant as %s', async (email, meant) => {
    const answer = await validate(house, partner, email)
    expect(resultOf(answer)).toMatchObject({
      normalized: null,
      sub_status: 'invalid_syntax',
      did_you_mean: meant,
    })
    expectCredits(answer, '0', answer.headers.get('credits-remaining') ?? '')
  })

  test('a name with arbitrary dots is asked for in quotes, at the carriers that issued such names', async () => {
    const server = await world.host('docomo.ne.jp', { recipient: mailboxes('"a..b."') })
    const { status, normalized, checks } = resultOf(await validate(house, partner, 'a..b.@docomo.ne.jp'))
    expect({ status, normalized, quoted: checks.syntax.quoted }).toEqual({
      status: 'valid',
      normalized: 'a..b.@docomo.ne.jp',
      quoted: false,
    })
    expect(server.recipients()[0]).toBe('"a..b."@docomo.ne.jp')
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
      'a null MX (RFC 7505) is invalid',
      () => world.dns.set('null-mx.example.com', 'MX', [{ priority: 0, exchange: '' }]),
      'null_mx',
      4,
      { status: 'invalid', score: 0, mx: { ...noMx, null_mx: true } },
    ],
    [
      'a domain with neither exchanger nor address is invalid',
      () => world.dns.set('no-mail-server.example.com', 'MX', 'no_data'),
      'no_mail_server',
      5,
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
    [
      'an exchanger that is an address literal is never contacted',
      () => world.dns.set('mx-unroutable.example.com', 'MX', [{ priority: 5, exchange: '127.0.0.1' }]),
      'mx_unroutable',
      6,
      {
        status: 'invalid',
        score: 0,
        mx: { ...noMx, found: true, records: [{ exchange: '127.0.0.1', priority: 5 }] },
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

  test.each(['someone@[127.0.0.1]', 'someone@localhost', 'someone@mail.test'])(
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

  test('without an MX record the domain itself is contacted (RFC 5321 §5.1)', async () => {
    const server = await world.host('with-record.example.com', { recipient: mailboxes('someone') })
    world.dns.set('implicit.example.com', 'A', [server.address])
    const { status, checks } = resultOf(await validate(house, partner, 'someone@implicit.example.com'))
    expect(status).toBe('valid')
    expect(checks.mx).toEqual({ found: true, null_mx: false, implicit: true, provider: null, records: [] })
    expect(server.recipients()[0]).toBe('someone@implicit.example.com')
  })

  test('the exchangers are listed in order, with their provider; if the first is not reached, the next is tried', async () => {
    const server = await world.host('second-exchanger.example.com', { recipient: mailboxes('someone') })
    world.ruin('first-exchanger.example.com')
    world.dns.set('aspmx.l.google.com', 'CNAME', ['mx.first-exchanger.example.com'])
    world.dns.set('exchangers.example.com', 'MX', [
      { priority: 20, exchange: 'mx.second-exchanger.example.com' },
      { priority: 10, exchange: 'aspmx.l.google.com' },
    ])
    const { status, checks } = resultOf(await validate(house, partner, 'someone@exchangers.example.com'))
    expect(status).toBe('valid')
    expect(checks.mx).toEqual({
      found: true,
      null_mx: false,
      implicit: false,
      provider: 'google',
      records: [
        { exchange: 'aspmx.l.google.com', priority: 10 },
        { exchange: 'mx.second-exchanger.example.com', priority: 20 },
      ],
    })
    expect(server.recipients()[0]).toBe('someone@exchangers.example.com')
  })

  test('a domain whose mail goes to a disposable service is risky as well', async () => {
    const exchange = 'mx.10minutemail.com'
    world.dns.set('not-listed-itself.com', 'MX', [{ priority: 10, exchange }])
    world.dns.set(exchange, 'A', ['127.0.0.1'])
    const { sub_status, checks } = resultOf(await validate(house, partner, 'someone@not-listed-itself.com'))
    expect({ sub_status, disposable: checks.disposable, asked: checks.smtp.attempted }).toEqual({
      sub_status: 'disposable',
      disposable: true,
      asked: false,
    })
  })

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
      'no such user: invalid',
      { recipient: () => '550 5.1.1 no such user' },
      {
        subStatus: 'mailbox_not_found',
        row: 14,
        status: 'invalid',
        score: 0,
        smtp: { ...asked, deliverable: false, code: 550, enhanced_code: '5.1.1' },
      },
    ],
    [
      'account disabled: invalid',
      { recipient: () => '550 5.2.1 account disabled' },
      {
        subStatus: 'mailbox_disabled',
        row: 14,
        status: 'invalid',
        score: 0,
        smtp: { ...asked, deliverable: false, disabled: true, code: 550, enhanced_code: '5.2.1' },
      },
    ],
    [
      'mailbox full: risky',
      { recipient: () => '452 4.2.2 mailbox full' },
      {
        subStatus: 'mailbox_full',
        row: 11,
        status: 'risky',
        score: 30,
        smtp: { ...asked, mailbox_full: true, code: 452, enhanced_code: '4.2.2' },
      },
    ],
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
      'yes, but no clear answer about a random mailbox: risky, undetermined and never false',
      {
        recipient: (mailbox) =>
          mailbox.startsWith('someone@') ? '250 2.1.5 ok' : '452 4.5.3 too many recipients',
      },
      {
        subStatus: 'catch_all_undetermined',
        row: 16,
        status: 'risky',
        score: 55,
        smtp: {
          ...asked,
          deliverable: true,
          mailbox_full: false,
          disabled: false,
          code: 250,
          enhanced_code: '2.1.5',
        },
      },
    ],
    [
      'a refusal of our client: unknown, not a missing mailbox',
      { recipient: () => '550 5.7.1 your host is listed at a blocklist' },
      {
        subStatus: 'blocked',
        row: 13,
        status: 'unknown',
        score: 40,
        smtp: { ...asked, code: 550, enhanced_code: '5.7.1' },
      },
    ],
    [
      'a refusal before the mailbox is named: unknown',
      { greeting: '554 5.7.1 no service for you\r\n' },
      {
        subStatus: 'blocked',
        row: 13,
        status: 'unknown',
        score: 40,
        smtp: { ...asked, code: 554, enhanced_code: '5.7.1' },
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
    [
      'a temporary failure: unknown, with the time to retry',
      { recipient: () => '451 4.3.0 local error' },
      {
        subStatus: 'temporary_failure',
        row: 12,
        status: 'unknown',
        score: 40,
        smtp: { ...asked, code: 451, enhanced_code: '4.3.0' },
        retryAfter: 900,
      },
    ],
    [
      'neither yes nor no (252): unknown',
      { recipient: () => '252 2.1.5 send some mail, I will try' },
      {
        subStatus: 'cannot_verify',
        row: 12,
        status: 'unknown',
        score: 40,
        smtp: { ...asked, code: 252, enhanced_code: '2.1.5' },
      },
    ],
    [
      'no answer before the deadline: unknown',
      { greeting: null },
      { subStatus: 'timeout', row: 10, status: 'unknown', score: 40, smtp: asked },
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

  test('a server that does not run is unknown: without a connection nothing can be determined', async () => {
    world.ruin('no-connect.example.com')
    const { status, sub_status, checks } = resultOf(
      await validate(house, partner, 'someone@no-connect.example.com'),
    )
    expect({ status, sub_status }).toEqual({ status: 'unknown', sub_status: 'no_connect' })
    expect(checks.smtp).toEqual({ ...notAsked, attempted: true, connected: false })
  })

  test('a server without SMTPUTF8 cannot be asked about a mailbox that is not ASCII: unknown', async () => {
    const server = await world.host('ascii.example.com', { offers: ['PIPELINING', 'ENHANCEDSTATUSCODES'] })
    const { sub_status, checks } = resultOf(await validate(house, partner, 'jemänd@ascii.example.com'))
    expect({ sub_status, smtputf8: checks.syntax.smtputf8 }).toEqual({
      sub_status: 'smtputf8_unsupported',
      smtputf8: true,
    })
    expect(server.recipients()).toEqual([])
  })
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

  test.each([[1], [true], [{}], [['someone@valid.example.com']]])(
    'REQ_003: %j is not an email',
    async (email) => {
      expectRefusedCall(
        await house.post(partner, path, { email }),
        partner,
        {
          status: 400,
          error: 'validation_error',
          code: 'REQ_003',
          details: { parameter: 'email', expected: 'a string' },
        },
        'email_validation',
      )
    },
  )

  test.each([['true'], [1], [{}], [[]]])(
    'REQ_003: include_company_data %j is not a boolean',
    async (wrong) => {
      expectRefusedCall(
        await house.post(partner, path, { email: 'nonsense', include_company_data: wrong }),
        partner,
        {
          status: 400,
          error: 'validation_error',
          code: 'REQ_003',
          details: { parameter: 'include_company_data', expected: 'a boolean' },
        },
        'email_validation',
      )
    },
  )

  test.each([
    '',
    ' ',
    'someone',
    'a@b@c',
    'a..b@example.com',
    'some one@example.com',
    'someone@-a.com',
    '\u0000@a.com',
  ])('a malformed address is a 200 with the status invalid: %j', async (email) => {
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

  test.each(['\ud800', 'someone@\udfff.com', `${'a'.repeat(319)}\ud83d\ude00`])(
    'half a character is not an address, and breaks nothing: %j',
    async (email) => {
      const { status, sub_status } = resultOf(await validate(house, partner, email))
      expect({ status, sub_status }).toEqual({ status: 'invalid', sub_status: 'invalid_syntax' })
    },
  )

  test('unknown members are ignored', async () => {
    const answer = await house.post(partner, path, { email: 'nonsense', depth: 3 })
    expect(resultOf(answer).status).toBe('invalid')
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

describe('with EMAIL_PROBE=off', () => {
  test('no server is contacted: verdicts that need a server are unknown, and free', async () => {
    const server = await world.host('probe-off.example.com', { recipient: mailboxes('someone') })
    const quiet = await openHouse({ environment: { ...world.environment, EMAIL_PROBE: 'off' } })
    try {
      const one = await emailPartner(quiet, { credits: '5' })
      const answer = await validate(quiet, one, 'someone@probe-off.example.com')
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
    } finally {
      await quiet.close()
    }
  })
})

describe('without SMTP_ALLOW', () => {
  test('an exchanger at a private address is invalid, mx_unroutable, and never contacted', async () => {
    const server = await world.host('inside.example.com', { recipient: mailboxes('someone') })
    const guarded = await openHouse({
      environment: { ...world.environment, SMTP_ALLOW: '', EGRESS_ALLOW: '127.0.0.0/8' },
    })
    try {
      const one = await emailPartner(guarded, { credits: '5' })
      const answer = await validate(guarded, one, 'someone@inside.example.com')
      expect(resultOf(answer)).toMatchObject({ status: 'invalid', sub_status: 'mx_unroutable' })
      expect(answer.events[0]?.data).toMatchObject({ facts: { decision_row: 6 } })
      expectCredits(answer, '0', '5')
      expect(server.conversations).toHaveLength(0)
    } finally {
      await guarded.close()
    }
  })
})
