/** Specification 4.1, billing rules 1 to 5, with decisions 9, 10, 12, 15 and 24. */
import { describe, expect, test, vi } from 'vitest'
import type { Answer, House, Partner, PartnerOptions } from '../support/house.ts'
import {
  chargedValidation,
  companyLine,
  emailPartner,
  freeValidation,
  knowCompany,
  type MailWorld,
  mailboxes,
  mailHouse,
  path,
  resultOf,
  sendValidate,
  takeCompaniesAway,
  validate,
  validLine,
} from './email-validation-scene.ts'
import { unavailable } from './ledger-scene.ts'
import { bare, expectCredits, expectErrorObject } from './wire.ts'

let world: MailWorld
let house: House

mailHouse(async (opened) => {
  ;({ house, world } = opened)
  await world.host('valid.example.com', { recipient: mailboxes('someone') })
  await world.host('acme-widgets.com', { recipient: mailboxes('someone') })
  await world.host('nobody-knows-it.com', { recipient: mailboxes('someone') })
  await world.host('catch-all-widgets.com')
  await world.host('full.example.com', { recipient: () => '552 5.2.2 mailbox full' })
  await world.host('later.example.com', { recipient: () => '451 4.3.0 local error' })
  await knowCompany(house, 'acme-widgets.com', 'Acme Widgets')
  await knowCompany(house, 'catch-all-widgets.com', 'Catch-all Widgets')
})

const accepted = (domain: string) => ({ status: 'valid', sub_status: 'accepted', decision_row: 17, domain })

describe('4.1.1 a valid result consumes credits', () => {
  test('is one line under the rule email_validation.valid: in the ledger, in the answer and in its headers', async () => {
    const partner = await emailPartner(house, { credits: '10' })
    const answer = await validate(house, partner, 'someone@valid.example.com')
    expect(bare(answer.events)).toEqual(
      chargedValidation(partner, accepted('valid.example.com'), { lines: [validLine], amount: '1' }),
    )
    const [fact, charge] = answer.events
    expect(charge?.revision).toBe((fact?.revision ?? 0) + 1)
    expect(charge?.metadata).toMatchObject({ causation_id: fact?.id, request_id: answer.body.request_id })
    expect(resultOf(answer).billing).toEqual({
      billable: true,
      validation_credits: '1',
      company_credits: '0',
    })
    expectCredits(answer, '1', '9')
  })
})

describe('4.1.2 company enrichment costs extra only when requested and found', () => {
  test('one charge has a line for each rule, and the company is in the answer', async () => {
    const partner = await emailPartner(house, { credits: '10' })
    const answer = await validate(house, partner, 'someone@acme-widgets.com', { company: true })
    expect(bare(answer.events)).toEqual(
      chargedValidation(
        partner,
        { ...accepted('acme-widgets.com'), company_status: 'found' },
        { lines: [validLine, companyLine], amount: '3' },
      ),
    )
    const result = resultOf(answer)
    expect(result.billing).toEqual({ billable: true, validation_credits: '1', company_credits: '2' })
    expect(result.company_status).toBe('found')
    expect(result.company).toEqual({
      name: 'Acme Widgets',
      legal_name: 'Acme Widgets Ltd',
      domain: 'acme-widgets.com',
      website: 'https://acme-widgets.com/',
      industry: 'widgets',
      size_range: '51-200',
      employee_count: 120,
      founded_year: 1987,
      location: { locality: 'Leeds', region: 'England', country: 'United Kingdom', country_code: 'GB' },
      profnet_url: null,
      logo_url: null,
      source: 'a data set',
      source_updated_at: '2026-01-02T03:04:05.000Z',
    })
    expectCredits(answer, '3', '7')
  })

  test('include_company_data null requests no company and costs nothing (decision 16)', async () => {
    const partner = await emailPartner(house, { credits: '10' })
    const answer = await house.post(partner, path, {
      email: 'someone@acme-widgets.com',
      include_company_data: null,
    })
    expect(resultOf(answer)).toMatchObject({
      company: null,
      company_status: 'not_requested',
      billing: { validation_credits: '1', company_credits: '0' },
    })
    expectCredits(answer, '1', '9')
  })

  test('a risky address costs nothing itself; the company found for it does (decision 10)', async () => {
    const partner = await emailPartner(house, { credits: '10' })
    const answer = await validate(house, partner, 'someone@catch-all-widgets.com', { company: true })
    expect(bare(answer.events)).toEqual(
      chargedValidation(
        partner,
        {
          status: 'risky',
          sub_status: 'catch_all',
          decision_row: 15,
          company_status: 'found',
          domain: 'catch-all-widgets.com',
        },
        { lines: [companyLine], amount: '2' },
      ),
    )
    expect(resultOf(answer).billing).toEqual({
      billable: true,
      validation_credits: '0',
      company_credits: '2',
    })
    expectCredits(answer, '2', '8')
  })

  test('an unknown address has no company: when the call is repeated, the company is charged once (decision 10)', async () => {
    let greylisting = true
    const known = mailboxes('someone')
    const domain = 'greylisting-widgets.com'
    await world.host(domain, {
      recipient: (...asked) => (greylisting ? '450 4.7.1 greylisted, try again later' : known(...asked)),
    })
    await knowCompany(house, domain, 'Greylisting Widgets')
    const partner = await emailPartner(house, { credits: '10' })
    const first = await validate(house, partner, `someone@${domain}`, { company: true })
    expect(resultOf(first)).toMatchObject({
      sub_status: 'greylisted',
      company: null,
      company_status: 'not_applicable',
      billing: { billable: false, validation_credits: '0', company_credits: '0' },
    })
    expectCredits(first, '0', '10')
    greylisting = false
    const again = await validate(house, partner, `someone@${domain}`, { company: true })
    expect(resultOf(again)).toMatchObject({
      status: 'valid',
      company_status: 'found',
      billing: { billable: true, validation_credits: '1', company_credits: '2' },
    })
    expectCredits(again, '3', '7')
  })

  test('no company is looked up for a disposable address, even if only its mail exchanger is disposable', async () => {
    const exchange = 'mx.10minutemail.com'
    world.dns.set('throw-away-widgets.com', 'MX', [{ priority: 10, exchange }])
    world.dns.set(exchange, 'A', ['127.0.0.1'])
    await knowCompany(house, 'throw-away-widgets.com', 'Throw-away Widgets')
    const partner = await emailPartner(house, { credits: '10' })
    const answer = await validate(house, partner, 'someone@throw-away-widgets.com', { company: true })
    expect(resultOf(answer)).toMatchObject({
      sub_status: 'disposable',
      company: null,
      company_status: 'not_applicable',
      billing: { billable: false, validation_credits: '0', company_credits: '0' },
    })
    expectCredits(answer, '0', '10')
  })
})

describe('4.1.3 invalid emails cost 0 credits, and so does every address that is not valid (decision 9)', () => {
  test.each([
    ['nobody@valid.example.com', 'invalid', 'mailbox_not_found', 14, 'valid.example.com'],
    ['someone@mailinator.com', 'risky', 'disposable', 8, 'mailinator.com'],
    ['someone@later.example.com', 'unknown', 'temporary_failure', 12, 'later.example.com'],
  ])('%s is %s, and free by the rule of that name', async (email, status, subStatus, row, domain) => {
    world.dns.set('mailinator.com', 'MX', [{ priority: 1, exchange: 'mx.valid.example.com' }])
    const partner = await emailPartner(house, { credits: '10' })
    const answer = await validate(house, partner, email)
    expect(bare(answer.events)).toEqual(
      freeValidation(partner, { status, sub_status: subStatus, decision_row: row, domain }),
    )
    expect(resultOf(answer).billing).toEqual({
      billable: false,
      validation_credits: '0',
      company_credits: '0',
    })
    expectCredits(answer, '0', '10')
  })
})

describe('4.1.4 company data requested and not found', () => {
  test('adds no charge, and the answer has not_found', async () => {
    const partner = await emailPartner(house, { credits: '10' })
    const answer = await validate(house, partner, 'someone@nobody-knows-it.com', { company: true })
    expect(bare(answer.events)).toEqual(
      chargedValidation(
        partner,
        { ...accepted('nobody-knows-it.com'), company_status: 'not_found' },
        { lines: [validLine], amount: '1' },
      ),
    )
    expect(resultOf(answer)).toMatchObject({
      company: null,
      company_status: 'not_found',
      billing: { validation_credits: '1', company_credits: '0' },
    })
    expectCredits(answer, '1', '9')
  })
})

describe('when companies cannot be looked up', () => {
  test('the call gets SYS_002 and is free: not_found would claim a result that was never determined', async () => {
    await world.host('unread-widgets.com', { recipient: mailboxes('someone') })
    await knowCompany(house, 'unread-widgets.com', 'Unread Widgets')
    const partner = await emailPartner(house, { credits: '3' })
    const headers = { 'idempotency-key': 'until-it-works' }
    const giveBack = await takeCompaniesAway(house)
    try {
      const answer = await validate(house, partner, 'someone@unread-widgets.com', {
        company: true,
        headers,
      })
      expectErrorObject(answer, unavailable)
      expect(answer.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
      expect(answer.events.filter(({ type }) => type === 'CreditCharged')).toEqual([])
      expectCredits(answer, '0', '3')
      const without = await validate(house, partner, 'nobody@unread-widgets.com', { company: false })
      expect(resultOf(without).status).toBe('invalid')
    } finally {
      await giveBack()
    }
    // The balance is exactly three credits, so the failed call's reservation must have been released.
    const answer = await validate(house, partner, 'someone@unread-widgets.com', { company: true, headers })
    expect(answer.headers.get('idempotent-replayed')).toBeNull()
    expect(resultOf(answer).company_status).toBe('found')
    expectCredits(answer, '3', '0')
  })
})

describe('4.1.5 and 8: ten validations a second per key', () => {
  const atOnce = (partner: Partner, count: number): Promise<Answer[]> =>
    Promise.all(Array.from({ length: count }, () => sendValidate(house, partner, 'nonsense')))
  /** Sends a burst with an unused key. The clock of the windows stands still, so that the burst takes less than a second on any machine. */
  const burst = async (
    options: PartnerOptions,
    count: number,
  ): Promise<{ partner: Partner; answers: Answer[] }> => {
    const partner = await house.partner({ permissions: ['email_validation'], credits: '10', ...options })
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now())
    try {
      return { partner, answers: await atOnce(partner, count) }
    } finally {
      clock.mockRestore()
    }
  }
  const statusesOf = (answers: readonly { readonly status: number }[]) =>
    answers.map(({ status }) => status).sort()
  const times = (count: number, status: number): number[] => Array.from({ length: count }, () => status)

  test('the eleventh call gets RATE_001 because of the window second, costs 0, and is not recorded individually', async () => {
    const { partner, answers } = await burst({}, 13)
    expect(statusesOf(answers)).toEqual([...times(10, 200), ...times(3, 429)])
    for (const denied of answers.filter(({ status }) => status === 429)) {
      expectErrorObject(denied, {
        status: 429,
        error: 'rate_limited',
        code: 'RATE_001',
        details: { limit: 10, window: 'second', retry_after_seconds: 1 },
      })
      expect(denied.headers.get('retry-after')).toBe('1')
      expectCredits(denied, '0', '10')
    }
    const types = (await house.eventsOf(partner.organizationId)).map(({ type }) => type)
    expect(types).toEqual([
      'OrganizationRegistered',
      'CreditGranted',
      ...Array.from({ length: 10 }, () => 'KeyUsed'),
    ])
  })

  test('an upgraded key gets more calls, and the organization’s other keys have their own windows', async () => {
    const upgraded = await burst({ limits: { email_validations_per_second: 25 } }, 30)
    expect(statusesOf(upgraded.answers)).toEqual([...times(25, 200), ...times(5, 429)])
    const other = await house.key(upgraded.partner.organizationId, { permissions: ['email_validation'] })
    expect(statusesOf(await atOnce(other, 10))).toEqual(times(10, 200))
  })
})
