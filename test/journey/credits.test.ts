import { afterAll, beforeAll, expect, test } from 'vitest'
import { type House, openHouse, type Partner } from '../support/house.ts'
import { type CliResult, cli, cliJson } from '../support/service.ts'

/** Finance works with credits on the command line (grants, refunds, corrections) while a service charges calls. */

let house: House
let partner: Partner
let environment: Record<string, string>

beforeAll(async () => {
  house = await openHouse()
  partner = await house.partner({ credits: '0' })
  environment = {
    DATABASE_URL: house.foundation.url,
    DATABASE_MIGRATION_URL: house.foundation.migrationUrl,
    SECRET_KEY: house.config.SECRET_KEY ?? '',
  }
})
afterAll(() => house?.close())

const json = (...args: string[]): Promise<Record<string, unknown>> => cliJson(args, environment)
const run = (...args: string[]): Promise<CliResult> => cli(args, environment)

test('a year of credits is granted once, a call is refunded in parts into its lot, and past balances do not change', async () => {
  const { organizationId: org } = partner
  const grant = [
    'credits',
    'grant',
    org,
    '10',
    '--expires-at',
    '2998-12-31',
    '--reference',
    'INV-1',
    '--reason',
    'plan',
  ]
  expect(await json(...grant, '--dry-run')).toMatchObject({ dry_run: true, grant_id: null, balance: '10' })
  const granted = await json(...grant)
  expect(granted).toEqual({
    ...{ organization_id: org, grant_id: expect.any(String), amount: '10', priority: 100, reason: 'plan' },
    ...{ expires_at: '2998-12-31T23:59:59.999Z', reference: 'INV-1', already_granted: false },
    ...{ balance: '10', revision: expect.any(Number) },
  })
  expect(await json(...grant)).toEqual({ ...granted, already_granted: true })
  const other = await run(...grant, '--priority', '5')
  expect(other.code).toBe(1)
  expect(other.err).toContain('reference "INV-1" already names a grant of 10 credits with priority 100')

  const { body } = await house.lookup(partner, { ip: '81.2.69.142' })
  const requestId = String(body.request_id)
  const before = new Date().toISOString()
  const refund = ['credits', 'refund', requestId, '--org', org, '--reason', 'wrong place']
  expect(await json(...refund, '--dry-run')).toMatchObject({ dry_run: true, revision: null, balance: '10' })
  const part = [...refund, '--amount', '0.25', '--reference', 'CRN-0']
  const given = await json(...part)
  expect(await json(...part)).toEqual({ ...given, already_refunded: true })
  const larger = await run(...refund, '--amount', '0.5', '--reference', 'CRN-0')
  expect([larger.code, larger.err]).toEqual([
    1,
    expect.stringContaining(`reference "CRN-0" already names a refund of 0.25 credits of call ${requestId}`),
  ])
  expect(given).toMatchObject({
    ...{ reference: 'CRN-0', already_refunded: false },
    ...{ request_id: requestId, organization_id: org, charged: '1', costs_now: '0.75', amount: '0.25' },
    ...{ into: [{ grant_id: granted.grant_id, amount: '0.25' }], new_lot: null, balance: '9.25' },
  })
  expect(await json(...refund)).toMatchObject({ amount: '0.75', costs_now: '0', balance: '10' })
  const again = await run(...refund)
  expect(again.code).toBe(1)
  expect(again.err).toContain(
    `call ${requestId} has nothing left to refund: it was charged 1; since then: 0.25`,
  )

  expect(await json('credits', 'balance', org, '--at', before)).toMatchObject({ at: before, balance: '9' })
  const known = await json('credits', 'balance', org, '--known-at', before)
  expect(known).toMatchObject({ known_at: before, balance: '9' })
  expect((await json('credits', 'balance', org)).balance).toBe('10')

  expect(
    await json('credits', 'adjust', org, '-2', '--reason', 'agreed', '--reference', 'CRN-1', '--yes'),
  ).toMatchObject({
    ...{
      amount: '-2',
      balance: '8',
      already_adjusted: false,
      from: [{ grant_id: granted.grant_id, amount: '2' }],
    },
  })
  expect(await json('credits', 'lots', org)).toMatchObject([
    { grant_id: granted.grant_id, left: '8', granted: '10', reference: 'INV-1' },
  ])
  expect(await json('credits', 'threshold', org, '5')).toMatchObject({ threshold: '5' })
  expect(
    await json('credits', 'void', org, String(granted.grant_id), '--reason', 'granted twice', '--yes'),
  ).toMatchObject({ amount: '-8', balance: '0' })
  expect(await json('ledger', 'verify', org)).toMatchObject({ ok: true })
})
