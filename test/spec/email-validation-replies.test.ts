/** Real replies of mail servers, replayed through HTTP: each verdict and each charge. The mailboxes in them are invented. */
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import type { House, Partner } from '../support/house.ts'
import { emailPartner, type MailWorld, mailHouse, resultOf, validate } from './email-validation-scene.ts'

let world: MailWorld
let house: House
let partner: Partner
mailHouse(async (opened) => {
  ;({ house, world } = opened)
  partner = await emailPartner(house, { credits: '1000' })
})

let domains = 0
const newDomain = (): string => `d${++domains}.example.com`
const isRandom = (mailbox: string): boolean => /^[a-z][a-z2-9]{19}@/.test(mailbox)
const isLiving = (mailbox: string): boolean => mailbox.startsWith('someone@')

/** `someone` has a mailbox. */
const living = (random: string, others = random) => ({
  recipient: (mailbox: string): string =>
    isLiving(mailbox) ? '250 2.1.5 ok' : isRandom(mailbox) ? random : others,
})

const keyUsed = z.object({ facts: z.object({ decision_row: z.int() }) })

/** The row, the verdict and what it cost. */
const judge = async (email: string): Promise<string> => {
  const answer = await validate(house, partner, email)
  const { status, sub_status: subStatus } = resultOf(answer)
  const { facts } = keyUsed.parse(answer.events[0]?.data)
  return `${facts.decision_row} ${status}/${subStatus} ${answer.headers.get('credits-charged')}`
}

const blocked = '13 unknown/blocked 0'
const unclear = '12 unknown/cannot_verify 0'
const missing = '14 invalid/mailbox_not_found 0'
const disabled = '14 invalid/mailbox_disabled 0'
const full = '11 risky/mailbox_full 0'
const undetermined = '16 risky/catch_all_undetermined 0'
const greylisted = '12 unknown/greylisted 0'
const valid = '17 valid/accepted 1'

describe('a refusal makes a mailbox invalid only if it means that', () => {
  test.each([
    ['552 5.1.1 Boite du destinataire pleine. Recipient overquota. OFR_417 [417]', full],
    ['550 Ip frequency limited', blocked],
    ['550 RP:TRC', blocked],
    ['550 5.2.1 Mailbox unavailable. Your IP address 192.0.2.7 is blacklisted using SPAMHAUS', blocked],
    ['550 5.1.1 <x@example.com>  - 192.0.2.0 has sent to too many recipients this hour. IB607', blocked],
    ['550 5.7.1 policy', blocked],
    ['550', unclear],
    ['553 System error', unclear],
    ['550 5.7.1 No such user!', missing],
    ['550 Invalid Recipient - https://community.mimecast.com/docs/DOC-1369#550', missing],
    ['550 5.3.0 no such user', missing],
    ["554 delivery error: dd This user doesn't have a yahoo.com account (x@yahoo.com) [0]", missing],
    ['552 1 Requested mail action aborted, mailbox not found', missing],
    ['525 5.7.13 Disabled recipient address', disabled],
    ['550 Empfaenger unbekannt', missing],
    ['550 用户不存在', missing],
    ['550 Нет такого пользователя', missing],
  ])('%s: %s', async (reply, verdict) => {
    const domain = newDomain()
    await world.host(domain, { recipient: () => reply })
    expect(await judge(`anyone@${domain}`)).toBe(verdict)
  })
})

describe('a valid mailbox needs a random one refused as unknown', () => {
  test.each([
    ['550 5.1.1 no such user', valid],
    ['550 5.1.1 <x@example.com>  - 192.0.2.0 has sent to too many recipients this hour. IB607', undetermined],
    ['550 5.7.1 policy', undetermined],
    ['550 Ip frequency limited', undetermined],
    ['452 4.5.3 too many recipients', undetermined],
    ['550 5.2.1 The account is disabled', undetermined],
    ['250 2.1.5 ok', '15 risky/catch_all 0'],
  ])('%s: %s', async (random, verdict) => {
    const domain = newDomain()
    await world.host(domain, living(random))
    expect(await judge(`someone@${domain}`)).toBe(verdict)
  })

  test('all of eight addresses at eight domains of one gateway are answered, though it refuses random ones by a policy', async () => {
    const gateway = newDomain()
    await world.host(gateway, living('550 5.7.1 Recipient rejected by policy'))
    const served = Array.from({ length: 8 }, newDomain)
    for (const domain of served) world.dns.set(domain, 'MX', [{ priority: 10, exchange: `mx.${gateway}` }])
    for (let round = 0; round < 2; round++)
      expect(await Promise.all(served.map((domain) => judge(`someone@${domain}`)))).toEqual(
        served.map(() => undetermined),
      )
  })
})

describe('a second attempt', () => {
  const secondTime = (putOff: string, missingThen: string) => {
    const seen = new Set<string>()
    const known = living(missingThen)
    return {
      recipient: (mailbox: string): string => {
        if (seen.has(mailbox)) return known.recipient(mailbox)
        seen.add(mailbox)
        return putOff
      },
    }
  }

  test.each([
    [
      'learns the verdict of a server that greylists',
      '450 4.2.0 <x@example.com>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/',
      '550 5.1.1 <x@example.com>: Recipient address rejected: User unknown in virtual mailbox table',
    ],
    [
      'learns the verdict of a server that asks another server first',
      '450 4.1.1 <x@example.com>: Recipient address rejected: unverified address: Address verification in progress',
      '450 4.1.1 <x@example.com>: Recipient address rejected: undeliverable address: unknown user: "x@example.com"',
    ],
  ])('%s', async (_, putOff, missingThen) => {
    const domain = newDomain()
    await world.host(domain, secondTime(putOff, missingThen))
    expect(await judge(`someone@${domain}`)).toBe(greylisted)
    expect(await judge(`someone@${domain}`)).toBe(valid)
    expect(await judge(`no-one@${domain}`)).toBe(greylisted)
    expect(await judge(`no-one@${domain}`)).toBe(missing)
  })

  test('learns the verdict of a vague server that has refused another mailbox as unknown', async () => {
    const domain = newDomain()
    await world.host(domain, living('550 5.7.1 policy', '550 5.1.1 no such user'))
    expect(await judge(`someone@${domain}`)).toBe(undetermined)
    expect(await judge(`no-one@${domain}`)).toBe(missing)
    expect(await judge(`someone@${domain}`)).toBe(valid)
  })

  test('finds that a server that accepted a random mailbox accepts everything, even if it refused some', async () => {
    const domain = newDomain()
    await world.host(domain, living('250 2.1.5 ok', '550 5.1.1 no such user'))
    expect(await judge(`no-one@${domain}`)).toBe(missing)
    expect(await judge(`someone@${domain}`)).toBe('15 risky/catch_all 0')
  })
})

test('a first exchanger that greets with 554 does not end the check', async () => {
  const [domain, first, second] = [newDomain(), newDomain(), newDomain()]
  await world.host(first, { greeting: '554 No SMTP service\r\n' })
  await world.host(second, living('550 5.1.1 no such user'))
  world.dns.set(domain, 'MX', [
    { priority: 10, exchange: `mx.${first}` },
    { priority: 20, exchange: `mx.${second}` },
  ])
  expect(await judge(`someone@${domain}`)).toBe(valid)
  expect(await judge(`no-one@${domain}`)).toBe(missing)
})

describe('a provider whose servers accept everything', () => {
  test('is not contacted, and nothing is reserved for a verdict that is free', async () => {
    const domain = newDomain()
    const host = await world.host('am0.yahoodns.net')
    world.dns.set(domain, 'MX', [{ priority: 1, exchange: 'mx.am0.yahoodns.net' }])
    const poor = await emailPartner(house, { credits: '0' })
    const result = resultOf(await validate(house, poor, `someone@${domain}`))
    expect(result).toMatchObject({ status: 'risky', sub_status: 'catch_all_undetermined', retry_after: null })
    expect(result.checks.mx.provider).toBe('yahoo')
    expect(result.checks.smtp).toMatchObject({ attempted: false, connected: null, deliverable: null })
    expect(host.conversations).toHaveLength(0)
  })

  test('is contacted if another exchanger is not its own', async () => {
    const [domain, own] = [newDomain(), newDomain()]
    await world.host(own, living('550 5.1.1 no such user'))
    world.dns.set(domain, 'MX', [
      { priority: 1, exchange: `mx.${own}` },
      { priority: 2, exchange: 'mx.am0.yahoodns.net' },
    ])
    expect(await judge(`someone@${domain}`)).toBe(valid)
  })
})
