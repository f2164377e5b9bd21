/** If a person is erased while a caller waits for another process's fetch, the source is not asked again. */
import { expect, test, vi } from 'vitest'
import { createClaims } from '../../src/capabilities/profile/record/claims.ts'
import type { Retrieval } from '../../src/capabilities/profile/record/retrieval.ts'
import type { Retrieved } from '../../src/capabilities/profile/record/retrieved.ts'
import type { Vault } from '../../src/capabilities/profile/record/vault.ts'
import type { ProfileRef } from '../../src/capabilities/profile/sources/provider.ts'
import { freshLid, freshUrn, lid, retrievalScene, subjectIdOf, urn } from './retrieval-scene.ts'

const scene = retrievalScene()
const { ask, askAndSettle, foundAs, processOver, source } = scene

const laterMs = 2 * 60_000
const missing = { kind: 'missing' }

/** Starts a request. Resolves once the caller has to wait for a fetch. The result contains the promise of the answer. */
const beginAsking = async (
  retrieval: Retrieval,
  ref: ProfileRef,
  wants: 'cached' | 'fresh',
): Promise<{ told: Promise<Retrieved> }> => {
  const fetching = Promise.withResolvers<void>()
  const told = retrieval.retrieve<never>(ref, {
    wants,
    organizationId: 'org_a',
    beforeUpstream: async () => {
      fetching.resolve()
      return null
    },
  })
  await fetching.promise
  return { told }
}

test.each(['cached', 'fresh'] as const)(
  'a caller who waits for %s data of an erased person gets "missing", and the source is not asked',
  async (wants) => {
    const name = freshLid()
    const claims = createClaims(scene.foundation().pool)
    expect(await claims.take(scene.hmacOf(lid(name)), 'another process')).toBe(true)
    const http = source(() => foundAs(name, null))
    const waiting = processOver(http)
    const { told } = await beginAsking(waiting, lid(name), wants)
    await scene.erase(lid(name))
    await claims.release(scene.hmacOf(lid(name)), 'another process')
    expect(await told).toEqual(missing)
    await waiting.close()
    expect(http.asked).toEqual([])
  },
)

test('a caller who waits for another name of an erased person gets "missing" too, and no cached data is served', async () => {
  const [name, number] = [freshLid(), freshUrn()]
  const http = source(() => foundAs(name, number))
  await askAndSettle(processOver(http), lid(name))
  scene.move(laterMs)
  const claims = createClaims(scene.foundation().pool)
  expect(await claims.take(scene.hmacOf(urn(number)), 'another process')).toBe(true)
  const waiting = processOver(http)
  const { told } = await beginAsking(waiting, urn(number), 'fresh')
  await scene.erase(lid(name))
  await claims.release(scene.hmacOf(urn(number)), 'another process')
  expect(await told).toEqual(missing)
  await waiting.close()
  expect(http.asked).toHaveLength(1)
})

test('a tombstone that is still projected is not served to a caller who waited', async () => {
  const name = freshLid()
  const http = source(() => foundAs(name, null))
  const subjectId = subjectIdOf(await askAndSettle(processOver(http), lid(name)))
  scene.move(laterMs)
  const { vault, destroying, goOn } = slowToDestroy()
  const other = processOver(
    source(() => ({ kind: 'gone' })),
    { vault },
  )
  const finding = ask(other, lid(name), 'fresh')
  await destroying
  const waiting = processOver(http)
  const { told } = await beginAsking(waiting, lid(name), 'fresh')
  await vi.waitFor(async () => expect(await goneOf(subjectId)).toBe('gone'), { timeout: 30_000 })

  const { pool } = scene.foundation()
  const holder = await pool.connect()
  try {
    await holder.query('begin')
    // The lock stops the projector, so the tombstone stays in the table.
    await holder.query(`lock table ${await profileTables()} in share row exclusive mode`)
    await scene.erase(lid(name))
    goOn()
    expect(await told).toEqual(missing)
    expect(await goneOf(subjectId)).toBe('gone')
  } finally {
    await holder.query('rollback')
    holder.release()
  }
  expect(await finding).toMatchObject({ kind: 'deleted', subjectId })
  await Promise.all([other.close(), waiting.close()])
  expect(http.asked).toHaveLength(1)
})

const slowToDestroy = () => {
  const told = Promise.withResolvers<void>()
  const going = Promise.withResolvers<void>()
  const vault = scene.vault()
  const slow: Vault = {
    ...vault,
    destroy: async (...of) => {
      told.resolve()
      await going.promise
      await vault.destroy(...of)
    },
  }
  return { vault: slow, destroying: told.promise, goOn: () => going.resolve() }
}

const goneOf = async (subjectId: string): Promise<unknown> => {
  const { rows } = await scene
    .foundation()
    .pool.query('select gone_reason from profile_cache where subject_id = $1', [subjectId])
  return rows[0]?.gone_reason
}

const profileTables = async (): Promise<string> => {
  const { rows } = await scene.foundation().pool.query<{ name: string }>(
    `select format('%I.%I', n.nspname, c.relname) as name
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind = 'r' and c.relname ~ '^profile_(cache|aliases)'`,
  )
  return rows.map(({ name }) => name).join(', ')
}
