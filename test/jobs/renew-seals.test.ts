/** At the end of an epoch, data that are still needed are sealed again, and the key is destroyed. */
import { randomUUID } from 'node:crypto'
import { readdir, rm } from 'node:fs/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { datasetStore, profileKeyStore } from '../../src/capabilities/profile/record/sealed-stores.ts'
import { createVault, type Sealed } from '../../src/capabilities/profile/record/vault.ts'
import type { EpochKeys } from '../../src/guard/secrets/epoch-keys.ts'
import { epochMs } from '../../src/guard/secrets/epochs.ts'
import type { EpochSealer } from '../../src/guard/secrets/secrets.ts'
import { renewSeals } from '../../src/jobs/own-jobs.ts'
import { processKeys } from '../support/epoch-keys.ts'
import { databaseForFile } from '../support/postgres.ts'

const hourMs = 3_600_000
const dayMs = 24 * hourMs
const epoch = 716

let keys: EpochKeys
let nowMs = 0
const clock = { now: () => nowMs }

const database = await databaseForFile()
const { pool } = database
beforeEach(async () => {
  await pool.query('truncate epoch_keys, profile_keys, profile_dataset')
  await rm(database.keyDir, { recursive: true, force: true })
  keys = processKeys({ pool, dir: database.keyDir, clock })
  nowMs = epoch * epochMs + 5 * dayMs
})

const purposes = { key: 'profile-key', person: 'profile-dataset', answer: 'idempotent-answer' }
const vaultOf = (of = keys) => createVault({ pool, sealer: of.sealer(purposes.key), clock })
const warned: object[] = []
const renew = ({
  of = keys,
  person = of.sealer(purposes.person),
  databaseMs = nowMs,
}: {
  of?: EpochKeys
  person?: EpochSealer
  databaseMs?: number
} = {}) =>
  renewSeals({
    keys: of,
    stores: [
      profileKeyStore({ pool, sealer: of.sealer(purposes.key), clock }),
      datasetStore({ pool, sealer: person }),
    ],
    clock,
    databaseNowMs: async () => databaseMs,
    logger: { warn: (fields: object) => void warned.push(fields) },
  })

type Kept = Sealed & { readonly subjectId: string }
const keep = async (text: string): Promise<Kept> => {
  const subjectId = `sub_${randomUUID()}`
  const sealed = await vaultOf().seal({ subjectId, hmacs: [subjectId], text })
  if (sealed === null) throw new Error('suppressed')
  return { ...sealed, subjectId }
}
const addPeople = async (count: number): Promise<void> => {
  const ids = Array.from({ length: count }, (_, n) => `person-${String(n).padStart(5, '0')}`)
  const sealed = await Promise.all(ids.map((id) => keys.sealer(purposes.person).seal(`about ${id}`, id)))
  await pool.query(
    `insert into profile_dataset (lid_hmac, sealed, imported_at)
       select id, sealed, now() from unnest($1::text[], $2::text[]) as u (id, sealed)`,
    [ids, sealed],
  )
}
/** The people in the data set, as seen by a process that has just started. */
const people = async (): Promise<string[]> => {
  const sealer = processKeys({ pool, dir: database.keyDir, clock }).sealer(purposes.person)
  const { rows } = await pool.query('select lid_hmac, sealed from profile_dataset order by lid_hmac')
  return rows.flatMap(({ lid_hmac, sealed }) =>
    sealer.open(sealed, lid_hmac) === `about ${lid_hmac}` ? [lid_hmac] : [],
  )
}
const epochsOf = async (table: 'profile_keys' | 'profile_dataset'): Promise<string[]> => {
  const column = table === 'profile_keys' ? 'sealed_key' : 'sealed'
  const { rows } = await pool.query(
    `select distinct split_part(${column}, '-', 1) as e from ${table} order by 1`,
  )
  return rows.map(({ e }) => e)
}
const keyFiles = async () => (await readdir(database.keyDir)).filter((name) => name.endsWith('.key')).sort()

describe('within an epoch', () => {
  test('there is nothing to do', async () => {
    const kept = await keep('somebody')
    nowMs += 20 * dayMs
    expect(await renew()).toEqual({ resealed: 0, destroyed: [] })
    expect(await vaultOf().open(kept)).toBe('somebody')
  })
})

describe('after an epoch', () => {
  test('needed data are sealed again immediately; the key stays for data with a lifetime of one day, and is then destroyed', async () => {
    nowMs += 20 * dayMs
    const kept = await keep('somebody')
    await addPeople(1_201)
    nowMs = (epoch + 1) * epochMs - 1
    const answer = await keys.sealer(purposes.answer).seal('an answer', 'a context')
    const { id } = await keys.current()
    nowMs = (epoch + 1) * epochMs
    expect(await renew()).toEqual({ resealed: 1_202, destroyed: [] })
    expect(await epochsOf('profile_keys')).toEqual(['717'])
    expect(await epochsOf('profile_dataset')).toEqual(['717'])
    nowMs += 24 * hourMs
    expect(await renew()).toEqual({ resealed: 0, destroyed: [] })
    expect(keys.sealer(purposes.answer).open(answer, 'a context')).toBe('an answer')
    nowMs += hourMs
    expect(await renew()).toEqual({ resealed: 0, destroyed: [id] })
    expect(await keyFiles()).toEqual(['717.key'])
    expect(keys.sealer(purposes.answer).open(answer, 'a context')).toBeNull()
    expect(await vaultOf().open(kept)).toBe('somebody')
    expect(await people()).toHaveLength(1_201)
    expect(await renew()).toEqual({ resealed: 0, destroyed: [] })
  })

  test('data that a process with a late clock writes under the old key are also found', async () => {
    const lateMs = (epoch + 1) * epochMs - 1_000
    await keep('somebody')
    nowMs = lateMs + 2_000
    await renew()
    const late = processKeys({ pool, dir: database.keyDir, clock: { now: () => lateMs } })
    const sealed = await vaultOf(late).seal({ subjectId: 'sub_late', hmacs: ['late'], text: 'too late' })
    nowMs += 26 * hourMs
    expect(await renew()).toMatchObject({ resealed: 1 })
    expect(await keyFiles()).toEqual(['717.key'])
    expect(await vaultOf().open({ subjectId: 'sub_late', keyId: '', sealed: '', ...sealed })).toBe('too late')
  })

  test('payloads older than 30 days are not sealed again, so they end with their key', async () => {
    nowMs = epoch * epochMs + hourMs
    const [old, young] = [await keep('old'), await keep('young')]
    await pool.query('update profile_keys set created_at = $1 where key_id = $2', [
      new Date(nowMs + 12 * hourMs),
      young.keyId,
    ])
    nowMs = old ? nowMs + 30 * dayMs + hourMs : 0
    expect(await renew()).toMatchObject({ resealed: 1 })
    expect(await keyFiles()).toEqual(['717.key'])
    expect([await vaultOf().open(old), await vaultOf().open(young)]).toEqual([null, 'young'])
  })

  test('people who are deleted during this stay deleted', async () => {
    await addPeople(3)
    nowMs += epochMs
    const sealer = keys.sealer(purposes.person)
    await renew({
      person: {
        ...sealer,
        seal: async (text, context) => {
          await pool.query(`delete from profile_dataset where lid_hmac = 'person-00001'`)
          return sealer.seal(text, context)
        },
      },
    })
    expect(await people()).toEqual(['person-00000', 'person-00002'])
  })

  test('a damaged value does not delay others', async () => {
    await addPeople(2)
    await pool.query(`update profile_dataset set sealed = sealed || 'x' where lid_hmac = 'person-00000'`)
    nowMs += epochMs + 26 * hourMs
    expect(await renew()).toMatchObject({ resealed: 1, destroyed: [expect.stringMatching(/^716-/)] })
    expect(await people()).toEqual(['person-00001'])
  })

  test('several simultaneous processes do the work once', async () => {
    await addPeople(700)
    nowMs += epochMs + 26 * hourMs
    const all = await Promise.all(
      [1, 2, 3].map(() => renew({ of: processKeys({ pool, dir: database.keyDir, clock }) })),
    )
    expect(all.reduce((sum, { resealed }) => sum + resealed, 0)).toBe(700)
    expect(await keyFiles()).toEqual(['717.key'])
    expect(await people()).toHaveLength(700)
  })

  test('after months without a process, the result is the same as after one epoch', async () => {
    await addPeople(2)
    nowMs += 7 * epochMs
    expect(await renew()).toMatchObject({ resealed: 2, destroyed: [expect.stringMatching(/^716-/)] })
    expect(await people()).toHaveLength(2)
  })
})

describe('no key is destroyed', () => {
  test('by a host whose clock is wrong, early or late', async () => {
    await addPeople(1)
    const rightMs = nowMs
    for (const offMs of [40 * dayMs, -40 * dayMs]) {
      nowMs = rightMs + offMs
      await expect(renew({ databaseMs: rightMs })).rejects.toThrow(
        "this host's clock and the database's clock differ",
      )
    }
    expect(await keyFiles()).toEqual(['716.key'])
  })

  test('while another key is missing', async () => {
    await addPeople(1)
    await pool.query(`insert into epoch_keys (key_id, epoch) values ('700-AAAAAAAA', 700)`)
    nowMs += epochMs + 26 * hourMs
    await expect(renew()).rejects.toThrow('700-AAAAAAAA')
    expect(await keyFiles()).toEqual(['716.key'])
  })
})

test('data sealed with a clock far ahead are sealed again under the current key', async () => {
  const ahead = processKeys({ pool, dir: database.keyDir, clock: { now: () => nowMs + 400 * dayMs } })
  const sealed = await vaultOf(ahead).seal({ subjectId: 'sub_ahead', hmacs: ['ahead'], text: 'somebody' })
  await keys.current()
  expect(await keyFiles()).toHaveLength(2)
  expect(await renew()).toMatchObject({ resealed: 1 })
  expect(await keyFiles()).toEqual(['716.key'])
  expect(await vaultOf().open({ subjectId: 'sub_ahead', keyId: '', sealed: '', ...sealed })).toBe('somebody')
})

test('an old key that a restored database does not contain is also destroyed', async () => {
  await addPeople(1)
  const before = await pool.query('select key_id, epoch from epoch_keys')
  nowMs += epochMs
  await keys.current()
  nowMs += epochMs + 26 * hourMs
  await pool.query('truncate epoch_keys')
  for (const { key_id, epoch: of } of before.rows)
    await pool.query('insert into epoch_keys (key_id, epoch) values ($1, $2)', [key_id, of])
  keys = processKeys({ pool, dir: database.keyDir, clock })
  expect(await renew()).toMatchObject({ resealed: 1 })
  expect(await keyFiles()).toEqual(['718.key'])
  expect(await people()).toEqual(['person-00000'])
})

test('in a database restored from before a key was destroyed, data under that key are deleted and reported', async () => {
  await addPeople(2)
  const { rows } = await pool.query('select * from profile_dataset')
  const { id } = await keys.current()
  nowMs += epochMs + 26 * hourMs
  await renew()
  await pool.query('truncate epoch_keys, profile_dataset')
  await pool.query('insert into epoch_keys (key_id, epoch) values ($1, $2)', [id, epoch])
  for (const { lid_hmac, sealed, imported_at } of rows)
    await pool.query('insert into profile_dataset (lid_hmac, sealed, imported_at) values ($1, $2, $3)', [
      lid_hmac,
      sealed,
      imported_at,
    ])
  expect(await people()).toEqual([])
  await renew()
  expect(warned).toEqual([{ key: id, store: 'profile data set', dropped: 2 }])
  expect((await pool.query('select 1 from profile_dataset')).rows).toEqual([])
  expect((await keys.list()).map(({ state }) => state)).toEqual(['present'])
})
