import { afterAll, beforeAll, expect, test } from 'vitest'
import { permission } from '../../src/events/capabilities.ts'
import { type House, openHouse, type Partner } from '../support/house.ts'

/** Texts that PostgreSQL cannot store, or that display misleadingly, in every place where a caller can send text. */

let house: House
let partner: Partner

beforeAll(async () => {
  house = await openHouse()
  partner = await house.partner({ credits: '1000', permissions: permission.options })
})

afterAll(() => house?.close())

const hostile = ['\0', 'a\0b', '\ud800', 'a\udfff', '\u202egpj.exe', 'a\u2028b', '\u0085', '\u0007']
const questions: readonly (readonly [string, (text: string) => object])[] = [
  ['/v1/email/validate', (text) => ({ email: `${text}@example.com`, include_company_data: true })],
  ['/v1/email/validate', (text) => ({ email: `a@exam${text}ple.com`, include_company_data: true })],
  ['/v1/ip/lookup', (text) => ({ ip: `8.8.8.8${text}` })],
  ['/v1/profnet/profile', (text) => ({ id: `vinaxo-braxstone-001${text}` })],
  ['/v1/profnet/profile', (text) => ({ id: text })],
  ['/pixel/limit', (text) => ({ domain: `example${text}.com`, period: 'day', number: 5 })],
  ['/pixel/limit', (text) => ({ domain: 'example.com', period: `day${text}`, number: 5 })],
  ['/pixel/block', (text) => ({ domain: `example.org${text}` })],
  ['/pixel/decide', (text) => ({ url: `https://example.com/${text}`, hit_id: text })],
]

test('are answered like any other invalid text, and leave the read models intact', async () => {
  for (const [path, bodyOf] of questions)
    for (const text of hostile) {
      const { status, body } = await house.post(partner, path, bodyOf(text))
      expect([path, text, status < 500, body]).toEqual([path, text, true, body])
    }
  for (const path of ['/whoami?x=%00', '/pixel/limit?domain=%00&period=day', '/%00', '/v1/ip/lookup?ip=%00'])
    for (const method of ['GET', 'DELETE', 'POST'])
      for (const on of ['api', 'dashboard'] as const)
        expect(
          (await house.ask(partner, { method, path, on, body: method === 'GET' ? undefined : {} })).status,
        ).toBeLessThan(500)
  await house.projected()
  expect(await house.query(`select name, error from projection_checkpoints where state <> 'live'`)).toEqual(
    [],
  )
  expect(await house.query('select projection, stream, error from parked_events')).toEqual([])
})
