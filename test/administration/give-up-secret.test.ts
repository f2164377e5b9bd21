/** Giving up a former SECRET_KEY: what is counted, what prevents it, and what is different afterwards. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { revoke } from '../../src/administration/api-keys.ts'
import { auditSentence } from '../../src/administration/audit-sentences.ts'
import { giveUpSecretKey, planGiveUp } from '../../src/administration/give-up-secret.ts'
import { planRotation, type Rotating, rotateSecrets } from '../../src/administration/rotate-secrets.ts'
import { ownKeyedUses } from '../../src/administration/secret-uses.ts'
import { capabilities } from '../../src/capabilities/index.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { eventIdOf } from '../../src/event-log/event-id.ts'
import { decodeEvent, encodeEvent } from '../../src/event-log/stored-event.ts'
import { isAudited } from '../../src/events/audited.ts'
import { operatorStream, profileStream } from '../../src/events/streams.ts'
import { knownSecretKeys } from '../../src/foundation/secret-ring.ts'
import { ringKeyOf } from '../../src/guard/secret-ring.ts'
import { type House, openHouse, type Partner, places, until } from '../support/house.ts'

const next = ringKeyOf('the second key of this installation as long')

let house: House
let partner: Partner
let unused: Partner
let rotating: Rotating
let former = ''

const usesOf: Rotating['uses'] = (known) => [
  ...ownKeyedUses(house.foundation, known),
  ...capabilities.flatMap((one) => ('keyed' in one ? (one.keyed?.(house.foundation) ?? []) : [])),
]
const refusal = (): Promise<string> =>
  plan().then(
    () => 'nothing prevents it',
    (error: Error) => error.message,
  )
const plan = (id = former) => planGiveUp(rotating, id)
const statesOf = async (): Promise<Record<string, unknown>> =>
  Object.fromEntries(
    (await house.query('select key_id, state from secret_keys order by number')).map(({ key_id, state }) => [
      key_id,
      state,
    ]),
  )
const givenUp = async () =>
  (await house.foundation.eventLog.read(operatorStream, { max: 1_000 }))
    .map(decodeEvent)
    .filter(({ type }) => type === 'SecretKeyGivenUp')
const keyed = (key: string, by: Partner = partner) =>
  house.lookup(by, { ip: places.london }, { 'idempotency-key': key })

const missed = (subject: string): Promise<unknown> => {
  const stream = profileStream(`sub_01J8ZQ5V7N3K2M4P6R8T0W1X2${subject}`)
  const data = {
    subject_id: `sub_01J8ZQ5V7N3K2M4P6R8T0W1X2${subject}`,
    provider: 'http',
    reason: 'not_found' as const,
    observed_at: '2026-11-21T09:00:00.000Z',
    aliases: [{ kind: 'lid' as const, hmac: 'q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA' }],
  }
  return appendNext(house.foundation.eventLog, stream, [
    encodeEvent(
      { type: 'ProfileMissed', data },
      { id: eventIdOf(stream, 'missed', 0), actor: 'system', effectiveAt: '2026-11-21T09:00:00.000Z' },
    ),
  ])
}

/** As an operator does, in a process that is given the next key as well. */
const rotateTo = async (key: ReturnType<typeof ringKeyOf>): Promise<void> => {
  const { ring } = house.foundation.secretRing
  ring.give([key, ...ring.given()])
  await house.foundation.secretRing.look()
  await rotateSecrets(rotating, await planRotation(rotating))
}

const daysAgo = (days: number) =>
  house.query(`update secret_keys set in_use_from = now() - $1 * interval '1 day' where key_id = $2`, [
    days,
    next.id,
  ])

beforeAll(async () => {
  house = await openHouse()
  const { foundation, config } = house
  rotating = {
    ...{ foundation, config, actor: 'user:ada', progress: () => undefined },
    uses: usesOf,
  }
  partner = await house.partner({ credits: '100' })
  unused = await house.partner({ credits: '1' })
  await house.lookup(unused, { ip: places.munich })
  former = foundation.secretRing.ring.current().id
  expect((await keyed('before')).status).toBe(200)
  expect((await house.lookup(partner, { ip: places.munich })).status).toBe(200)
}, 120_000)
afterAll(() => house?.close())

test('the key in use, one that was never in use, and what is no id are refused', async () => {
  await expect(plan()).rejects.toThrow(`${former} is in use`)
  for (const id of ['0123456789ab', '\0', ''])
    await expect(plan(id)).rejects.toThrow(`there was no SECRET_KEY ${id} in use here`)
})

test('what prevents it is told by name and count, and nothing is changed', async () => {
  await rotateTo(next)
  await house.query(
    `insert into profile_suppressions (hmac, suppressed_at) values ('one', now()), ('another', now())`,
  )
  await house.query(
    `insert into profile_keys (key_id, subject_id, sealed_key, created_at, hmacs) values ('1', 's', '', now(), '{}')`,
  )
  await missed('1')
  const refused = await refusal()
  expect(refused).toContain(`${former} cannot be given up. Nothing was changed.`)
  expect(refused).toContain('2 suppressions: without the key these people are not recognized')
  expect(refused).toContain('1 keys of profiles: they end within a month')
  expect(refused).toContain('1 requests under an Idempotency-Key: callers may still repeat them')
  expect(refused).toContain('1 epoch keys: they end by themselves')
  expect(refused).toContain('2 API keys: each is made anew when it is used')
  // Recorded after it was in use.
  expect(refused).not.toContain('events about people')
  expect(refused).not.toContain('addresses of calls')
  await expect(giveUpSecretKey(rotating, former)).rejects.toThrow('cannot be given up')
  expect(await givenUp()).toEqual([])
  expect(await statesOf()).toEqual({ [former]: 'needed', [next.id]: 'current' })
  await house.query('delete from profile_suppressions')
  await house.query('delete from profile_keys')
})

test('a person whom an event of its time names prevents it, also when the log is another one', async () => {
  const place = (await knownSecretKeys(house.foundation.pool))[0]?.until
  await house.query(`update secret_keys set position_until = null where key_id = $1`, [former])
  expect(await refusal()).toContain('some process may still make things under')
  // A place that is not in this log says nothing: all of it is looked through.
  await house.query(
    `update secret_keys set position_until = $2, event_until = 'of another log' where key_id = $1`,
    [former, place?.position.toString()],
  )
  expect(await refusal()).toContain('1 events about people: an erasure would not find all')
  await house.query('update secret_keys set position_until = $2, event_until = $3 where key_id = $1', [
    former,
    place?.position.toString(),
    place?.eventId,
  ])
})

test('what is lost is told, recorded once with who did it, and the key leaves', async () => {
  const { keyId } = unused
  await revoke(house.foundation, { keyId, reason: 'not used any more', actor: 'user:ada' })
  // Used, and so made anew.
  await house.lookup(partner, { ip: places.munich })
  await until('the key in use is made anew', async () => !(await refusal()).includes('API keys'))
  // As the refusal says, and what the projector has sealed meanwhile.
  await house.projected()
  await rotateSecrets(rotating, await planRotation(rotating))
  // As in a month.
  rotating = { ...rotating, uses: (known) => usesOf(known).filter(({ name }) => name !== 'epoch keys') }
  await daysAgo(29)
  expect(await refusal()).toMatch(
    /^[^:]* 1 requests under an Idempotency-Key: [^:]*: 30 days [^:]*is possible$/,
  )
  await daysAgo(31)
  const told = await plan()
  const lost = [
    { use: 'requests under an Idempotency-Key', count: 1 },
    { use: 'addresses of calls', count: 3 },
  ]
  expect(told.lost).toMatchObject(lost)
  expect(await statesOf()).toEqual({ [former]: 'needed', [next.id]: 'current' })
  expect(await givenUp()).toEqual([])
  // Two at once are one act.
  await Promise.all([giveUpSecretKey(rotating, former), giveUpSecretKey(rotating, former)])
  expect(await statesOf()).toEqual({ [former]: 'left', [next.id]: 'current' })
  const [event, ...more] = await givenUp()
  expect(more).toEqual([])
  expect(event).toMatchObject({ data: { secret_key: former, lost }, metadata: { actor: 'user:ada' } })
  expect(event === undefined || !isAudited(event) ? null : auditSentence(event)).toBe(
    `gave up the SECRET_KEY ${former}, under which 1 requests under an Idempotency-Key, 3 addresses of calls were compared`,
  )
})

test('without it a repeated request is refused and not charged again', async () => {
  const again = await house.key(partner.organizationId)
  const remaining = async () => (await house.whoami(again)).headers.get('credits-remaining')
  const before = await remaining()
  expect(before).toMatch(/^\d/)
  expect((await keyed('before', again)).headers.get('idempotent-replayed')).toBe('true')
  house.foundation.secretRing.ring.give(
    house.foundation.secretRing.ring.given().filter(({ id }) => id !== former),
  )
  // Nor does the memory of a day know it.
  await house.query('truncate idempotent_calls')
  const repeated = await keyed('before', again)
  expect([repeated.status, repeated.body.code]).toEqual([422, 'IDEMP_001'])
  expect(repeated.events.map(({ type }) => type)).toEqual(['KeyUsed'])
  expect(await remaining()).toBe(before)
})

test('a later rotation leaves it as it is', async () => {
  await rotateTo(ringKeyOf('a third key that it comes to later, as long'))
  expect(await statesOf()).toMatchObject({ [former]: 'left', [next.id]: 'needed' })
  await expect(plan()).rejects.toThrow(`${former} has left: nothing depends on it`)
})
