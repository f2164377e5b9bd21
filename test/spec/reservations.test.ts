/**
 * Decision 13 and ledger protocol rule 8: a refusal must not reveal a result, so only a caller who can pay learns whether a
 * mailbox exists.
 */
import pino from 'pino'
import { describe, expect, test } from 'vitest'
import { balance } from '../../src/administration/credits/credits.ts'
import { formatCredits } from '../../src/billing/money.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { type House, type Partner, until } from '../support/house.ts'
import type { SmtpServer } from '../support/smtp-servers.ts'
import {
  emailPartner,
  knowCompany,
  type MailWorld,
  mailboxes,
  mailHouse,
  resultOf,
  sendValidate,
  takeCompaniesAway,
  validate,
} from './email-validation-scene.ts'
import { buy, chargesOf, unpaid } from './ledger-scene.ts'
import { expectCredits, expectErrorObject, expectRefusedCall } from './wire.ts'

let world: MailWorld
let house: House

mailHouse((opened) => {
  ;({ house, world } = opened)
})

let named = 0
const freshDomain = async (
  script: Parameters<MailWorld['host']>[1] = { recipient: mailboxes('someone') },
): Promise<{ domain: string; server: SmtpServer }> => {
  const domain = `widgets-${++named}.com`
  return { domain, server: await world.host(domain, script) }
}

/** Grants credits as another process would, so that this process's ledger has not read the grant. */
const grantElsewhere = async (partner: Partner, amount: string): Promise<void> => {
  const { eventLog } = house.foundation
  const ledger = createLedger({
    eventLog,
    snapshot: async () => null,
    logger: pino({ level: 'silent' }),
    clock: Date,
  })
  await buy(house, partner, amount, ledger)
  await ledger.drain()
}

const availableTo = async ({ organizationId }: Partner): Promise<string> =>
  formatCredits((await balance(house.foundation, organizationId)).available)

describe('without credits', () => {
  test('an existing mailbox is not checked: 402 before any connection, and the refusal is recorded', async () => {
    const { domain, server } = await freshDomain()
    const partner = await emailPartner(house, { credits: '0' })
    const answer = await validate(house, partner, `someone@${domain}`)
    expectRefusedCall(answer, partner, unpaid('1', '0'), 'email_validation')
    expect(server.conversations).toHaveLength(0)
  })

  test('a missing mailbox gets exactly the same refusal', async () => {
    const { domain, server } = await freshDomain()
    const partner = await emailPartner(house, { credits: '0' })
    const [one, other] = [
      await validate(house, partner, `someone@${domain}`),
      await validate(house, partner, `nobody@${domain}`),
    ]
    const { request_id: _, ...said } = one.body
    expect({ status: other.status, body: other.body }).toEqual({
      status: 402,
      body: { ...said, request_id: expect.any(String) },
    })
    expect(server.conversations).toHaveLength(0)
  })

  test.each([
    ['a malformed address', 'nonsense', 'invalid_syntax'],
    ['a domain that does not exist', 'someone@nowhere.example.com', 'domain_not_found'],
    ['a domain that is never routable', 'someone@localhost', 'domain_not_routable'],
  ])('%s is answered because that costs nothing', async (_, email, subStatus) => {
    const partner = await emailPartner(house, { credits: '0' })
    const answer = await validate(house, partner, email, { company: true })
    expect(resultOf(answer)).toMatchObject({ status: 'invalid', sub_status: subStatus })
    expectCredits(answer, '0', '0')
  })

  test('a provider whose servers accept everything is not contacted, and its free verdict needs no credits', async () => {
    const server = await world.host('am0.yahoodns.net')
    world.dns.set('hosted.example.com', 'MX', [{ priority: 1, exchange: 'mx.am0.yahoodns.net' }])
    const partner = await emailPartner(house, { credits: '0' })
    const answer = await validate(house, partner, 'someone@hosted.example.com')
    expect(resultOf(answer)).toMatchObject({
      sub_status: 'catch_all_undetermined',
      retry_after: null,
      checks: { mx: { provider: 'yahoo' }, smtp: { attempted: false, connected: null, deliverable: null } },
    })
    expectCredits(answer, '0', '0')
    expect(server.conversations).toHaveLength(0)
  })

  test('an organization with an overdraft is answered until its limit', async () => {
    const { domain, server } = await freshDomain()
    const partner = await emailPartner(house, { credits: '0', overdraft: '1' })
    const answer = await validate(house, partner, `someone@${domain}`)
    expect(resultOf(answer).status).toBe('valid')
    expectCredits(answer, '1', '-1')
    const asked = server.recipients().length
    const refused = await validate(house, partner, `someone@${domain}`)
    expectRefusedCall(refused, partner, unpaid('1', '0'), 'email_validation')
    expect(server.recipients()).toHaveLength(asked)
  })
})

describe('the balance must cover the highest possible price of the call', () => {
  test('with company data requested that includes the company, found or not', async () => {
    const { domain, server } = await freshDomain()
    await knowCompany(house, domain, 'Widgets')
    const partner = await emailPartner(house, { credits: '2.999999' })
    const answer = await validate(house, partner, `someone@${domain}`, { company: true })
    expectRefusedCall(answer, partner, unpaid('3', '2.999999'), 'email_validation')
    expect(server.conversations).toHaveLength(0)
    expectCredits(await validate(house, partner, `someone@${domain}`), '1', '1.999999')
  })

  test('a mailbox provider’s company is never charged: the price of the address is enough', async () => {
    await world.host('gmail.com', { recipient: mailboxes('someone') })
    const partner = await emailPartner(house, { credits: '1' })
    const answer = await validate(house, partner, 'someone@gmail.com', { company: true })
    expect(resultOf(answer)).toMatchObject({ status: 'valid', company_status: 'not_applicable' })
    expectCredits(answer, '1', '0')
  })

  test('if the verdict is already unknown, no company is looked up, and no balance for it is needed', async () => {
    world.dns.set('servfail-widgets.com', 'MX', 'servfail')
    const partner = await emailPartner(house, { credits: '1' })
    // If the call looked up a company, it would fail.
    const giveBack = await takeCompaniesAway(house)
    try {
      const answer = await validate(house, partner, 'someone@servfail-widgets.com', { company: true })
      expect(resultOf(answer)).toMatchObject({
        status: 'unknown',
        sub_status: 'dns_error',
        company: null,
        company_status: 'not_applicable',
      })
      expectCredits(answer, '0', '1')
    } finally {
      await giveBack()
    }
  })
})

describe('calls in progress', () => {
  test('with credits for only one of eight simultaneous calls, a single call is answered and charged, and a single mailbox is checked', async () => {
    const { domain, server } = await freshDomain({ recipient: mailboxes('someone'), thinkMs: 20 })
    const partner = await emailPartner(house, { credits: '1' })
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => sendValidate(house, partner, `someone@${domain}`)),
    )
    const statuses = answers.map(({ status }) => status).sort()
    expect(statuses).toEqual([200, 402, 402, 402, 402, 402, 402, 402])
    for (const answer of answers)
      if (answer.status === 402) {
        expectErrorObject(answer, unpaid('1', '0'))
        expect(answer.headers.get('credits-charged')).toBe('0')
      }
    expect(await chargesOf(house, partner)).toHaveLength(1)
    expect(server.recipients().filter((mailbox) => mailbox === `someone@${domain}`)).toHaveLength(1)
    expect(await availableTo(partner)).toBe('0')
  })

  test('leave nothing reserved: the next call can spend credits that the last one did not use', async () => {
    const { domain } = await freshDomain()
    const { domain: gone } = await freshDomain({ greeting: '554 5.7.1 no service for you\r\n' })
    const partner = await emailPartner(house, { credits: '1' })
    for (const email of [`nobody@${domain}`, `someone@${gone}`, `nobody@${domain}`])
      expectCredits(await validate(house, partner, email), '0', '1')
    expectCredits(await validate(house, partner, `someone@${domain}`), '1', '0')
  })

  test('never overdraw when another call spends credits during the check: the append decides', async () => {
    const { domain, server } = await freshDomain({
      recipient: mailboxes('someone'),
      thinkMs: 60,
    })
    const partner = await house.partner({
      permissions: ['email_validation', 'ip_lookup'],
      credits: '1',
    })
    const slow = sendValidate(house, partner, `someone@${domain}`)
    await until('the mail server is spoken to', async () => server.conversations.length > 0)
    const { body, status } = await house.lookup(partner, { ip: '81.2.69.142' })
    const answer = await slow
    expect([status, answer.status].sort()).toEqual([200, 402])
    expect(body).toBeTypeOf('object')
    expect(await availableTo(partner)).toBe('0')
  })
})

describe('credits granted by another process a moment ago', () => {
  test('count: no call is refused because this process has not read the grant yet', async () => {
    const { domain } = await freshDomain()
    const partner = await emailPartner(house, { credits: '0' })
    expect((await validate(house, partner, `someone@${domain}`)).status).toBe(402)
    await grantElsewhere(partner, '1')
    const answer = await validate(house, partner, `someone@${domain}`)
    expect(resultOf(answer).status).toBe('valid')
    expectCredits(answer, '1', '0')
  })
})
