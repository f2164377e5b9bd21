import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { keyStream } from '../../src/events/streams.ts'
import { houseForFile, type Partner } from '../support/house.ts'
import { eventually } from '../support/service.ts'

/** A process that can append to the event log but not read it, for example because the database accepts no new connections. */

const house = await houseForFile({ clock: 'movable' })
const partner = await house.partner()
const revokedPartner = await house.partner()

const status = async (one: Partner): Promise<number> =>
  (await house.lookup(one, { ip: '81.2.69.142' }).catch(() => ({ status: 0 }))).status

/** Sends a call without reading the ledger, which this process cannot read now. */
const statusOnly = async (one: Partner): Promise<number> => {
  const answer = await fetch(`${house.apiUrl}/v1/ip/lookup`, {
    method: 'POST',
    headers: { 'x-api-key': one.apiKey, 'content-type': 'application/json' },
    body: '{"ip":"81.2.69.142"}',
  })
  await answer.arrayBuffer()
  return answer.status
}

test('a key that was revoked in the meantime is refused after 15 seconds at the latest', async () => {
  for (const one of [partner, revokedPartner]) expect(await status(one)).toBe(200)
  await house.query('revoke select on log_segments from test_service')
  // An append compares the last segment in these columns with the one that the process has seen.
  await house.query(
    'grant select (stream_id, last_position, last_revision, events) on log_segments to test_service',
  )
  const { keyId } = revokedPartner
  await house.foundation.eventLog.append(keyStream(keyId), 0, [
    {
      id: randomUUID(),
      type: 'ApiKeyRevoked',
      data: JSON.stringify({ key_id: keyId, reason: 'leaked' }),
      metadata: JSON.stringify({ schema_version: 1, actor: 'cli', effective_at: new Date().toISOString() }),
    },
  ])
  expect(await statusOnly(partner)).toBe(200)
  house.moveClock(16_000)
  // The log cannot be read, so the process cannot find out which keys were revoked.
  for (const one of [partner, revokedPartner]) expect(await statusOnly(one)).toBe(503)
  await house.query('grant select on log_segments to test_service')
  expect(await eventually(async () => ((await status(partner)) === 200 ? true : undefined))).toBe(true)
  expect(await statusOnly(revokedPartner)).toBe(401)
})
