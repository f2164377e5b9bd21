/** An Idempotency-Key that came before SECRET_KEY was rotated: the same request again is the same call. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Claims, createClaims } from '../../src/call/claims.ts'
import { claimOf } from '../../src/call/idempotency.ts'
import { ringOf } from '../../src/guard/secret-ring.ts'
import { createSecrets } from '../../src/guard/secrets.ts'
import { type House, openHouse } from '../support/house.ts'

let house: House
beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

const [oldKey, newKey] = ['o'.repeat(40), 'n'.repeat(40)]
const [before, now] = [createSecrets(oldKey), createSecrets(ringOf([newKey, oldKey]))]
const sealer = { seal: async (text: string) => text, open: (text: string) => text }
const claimsOf = (secrets: typeof now): Claims =>
  createClaims({ pool: house.foundation.pool, secrets, sealer })
const request = (secrets: typeof now, key: string, body = 'a body') =>
  claimOf(secrets, { organizationId: 'org_x', key }, { route: 'POST /v1/ip/lookup', body })

test('a claim is found, answered and let go under the key it was made with', async () => {
  expect(await claimsOf(before).insert(request(before, 'one'))).toBe(true)
  const claims = claimsOf(now)
  expect(await claims.insert(request(now, 'one'))).toBe(false)
  expect(await claims.read(request(now, 'one'))).toMatchObject({ same: true, answered: false })
  expect(await claims.read(request(now, 'one', 'another'))).toMatchObject({ same: false })
  await claims.finish(request(now, 'one'), { status: 200, body: 'told', paid: null })
  expect(await claimsOf(before).read(request(before, 'one'))).toMatchObject({
    answer: { status: 200, body: 'told' },
  })
  const row = await claims.read(request(now, 'one'))
  if (row === undefined) throw new Error('it is there')
  expect(await claims.reopen(request(now, 'one'), row)).toBe(true)
  await claims.release(request(now, 'one'))
  expect(await claims.read(request(now, 'one'))).toBeUndefined()
})

test('a first claim is made under the key in use, once', async () => {
  const claims = claimsOf(now)
  expect(await claims.insert(request(now, 'two'))).toBe(true)
  expect(await claims.insert(request(now, 'two'))).toBe(false)
  expect(await claimsOf(createSecrets(newKey)).read(request(createSecrets(newKey), 'two'))).toMatchObject({
    same: true,
  })
  expect(await claimsOf(before).read(request(before, 'two'))).toBeUndefined()
})
