/** While KEY_DIR is unreachable, no personal data is stored, because it could not be erased. All other calls work. */
import { rename } from 'node:fs/promises'
import { afterAll, expect, test } from 'vitest'
import { openHouse, places, until } from '../support/house.ts'
import { profileUpstream } from '../support/profile-upstream.ts'
import { chargesOf } from './ledger-scene.ts'
import { expectCredits } from './wire.ts'

const upstream = await profileUpstream()
upstream.answers(({ path }) => ({ body: { lid: path.split('/').at(-1), firstname: 'Zorvina' } }))
const house = await openHouse({
  environment: {
    PROFILE_PROVIDER: 'http',
    PROFILE_HTTP_URL: `${upstream.url}/people/{lid}`,
    EGRESS_ALLOW: '127.0.0.0/8',
  },
})
const keyDir = `${house.config.DATA_DIR}/keys`
const partner = await house.partner({ permissions: ['profnet_scraping', 'ip_lookup'], credits: '100' })
afterAll(async () => {
  await house.close()
  await upstream.close()
})

const profile = (id: string) => house.post(partner, '/v1/profnet/profile', { id })
const ready = async (): Promise<boolean> => (await fetch(`${house.apiUrl}/readyz`)).status === 200

test('profiles that would have to be stored get 503 and are free; a repeated call is still charged once; then all calls work again', async () => {
  expect((await profile('zorvina-1')).status).toBe(200)
  await rename(keyDir, `${keyDir}-away`)
  await until('the host is not ready', async () => !(await ready()))
  const refused = await profile('zorvina-2')
  expect(refused).toMatchObject({ status: 503, body: { code: 'SYS_002' } })
  expectCredits(refused, '0', '95')
  const once = () => house.lookup(partner, { ip: places.london }, { 'idempotency-key': 'while-away' })
  expectCredits(await once(), '1', '94')
  const again = await once()
  expect(again.status).toBe(200)
  expectCredits(again, '0', '94')
  expect(again.body.result).toMatchObject({ city: 'London' })
  await rename(`${keyDir}-away`, keyDir)
  await until('the host is ready', ready)
  expectCredits(await profile('zorvina-2'), '5', '89')
  expect(await chargesOf(house, partner)).toHaveLength(3)
})
