/**
 * An erasure also covers data that is being written while it runs, and every person that a name has ever led to. Callers who wait
 * meanwhile get nothing. Data that two fetches record at the same time can be read.
 */
import { describe, expect, test, vi } from 'vitest'
import { createFetchClaims } from '../../src/capabilities/profile/record/claims.ts'
import type { Erasure } from '../../src/capabilities/profile/record/erase.ts'
import type { Retrieval } from '../../src/capabilities/profile/record/retrieval.ts'
import type { Retrieved } from '../../src/capabilities/profile/record/retrieved.ts'
import type { Vault } from '../../src/capabilities/profile/record/vault.ts'
import type { ProfileRef } from '../../src/capabilities/profile/sources/provider.ts'
import { freshLid, freshUrn, lid, retrievalScene, type Source, subjectIdOf, urn } from './retrieval-scene.ts'

const scene = retrievalScene()
const { ask, askAndSettle, foundAs, processOver, source } = scene

const laterMs = 2 * 60_000
const down = { kind: 'transient', detail: 'down' } as const
const missing = { kind: 'missing' }

const suppressed = (ref: ProfileRef): Promise<boolean> => scene.vault().suppressed([scene.hmacOf(ref)])

/** A vault whose `seal` stores the key, but returns only when released. */
const slowVault = () => {
  const sealed = Promise.withResolvers<void>()
  const going = Promise.withResolvers<void>()
  const vault = scene.vault()
  const slow: Vault = {
    ...vault,
    seal: async (request) => {
      const result = await vault.seal(request)
      sealed.resolve()
      await going.promise
      return result
    },
  }
  return { slow, sealed: sealed.promise, goOn: () => going.resolve() }
}

/** Erases a person by `by` after their data, requested as `asked`, is sealed and before it is recorded. */
const eraseBetween = async (
  http: Source,
  { asked, by, wants }: { asked: ProfileRef; by: ProfileRef; wants?: 'fresh' },
): Promise<Erasure> => {
  const { slow, sealed, goOn } = slowVault()
  const fetching = processOver(http, { vault: slow })
  const asking = ask(fetching, asked, wants)
  await sealed
  const erasure = await scene.erase(by)
  goOn()
  await asking
  await fetching.close()
  return erasure
}

const lastFetched = async (): Promise<string> =>
  (await scene.profileEvents())
    .flatMap(({ type, data }) => (type === 'ProfileFetched' ? [data.subject_id] : []))
    .at(-1) ?? ''

describe('an erasure between sealing and recording', () => {
  test('destroys the key, and suppresses every identifier of the sealed payload', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const http = source(() => foundAs(name, number))
    expect(await eraseBetween(http, { asked: lid(name), by: lid(name) })).toEqual({
      subjects: 1,
      identifiers: 2,
    })
    const subjectId = await lastFetched()
    expect(subjectId).not.toBe('')
    expect(await scene.keysOf(subjectId)).toBe(0)
    const other = processOver(source(() => down))
    for (const ref of [lid(name), urn(number)]) {
      expect(await suppressed(ref)).toBe(true)
      for (const wants of ['cached', 'fresh'] as const)
        expect(await askAndSettle(other, ref, wants)).toEqual(missing)
    }
    expect(http.asked).toHaveLength(1)
  })

  test('by number destroys the key even if the fetch was by name', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const http = source(() => foundAs(name, number))
    await eraseBetween(http, { asked: lid(name), by: urn(number) })
    expect(await scene.keysOf(await lastFetched())).toBe(0)
    for (const ref of [lid(name), urn(number)]) expect(await suppressed(ref)).toBe(true)
  })

  test('covers the new name of a person who is renamed at the same time', async () => {
    const [old, young, number] = [freshLid(), freshLid(), freshUrn()]
    const http = source(() => foundAs(old, number))
    await askAndSettle(processOver(http), lid(old))
    scene.move(laterMs)
    http.script = () => foundAs(young, number)
    const erasure = await eraseBetween(http, { asked: urn(number), by: lid(old), wants: 'fresh' })
    expect(erasure).toMatchObject({ identifiers: 3 })
    const other = processOver(source(() => down))
    for (const ref of [lid(old), lid(young), urn(number)])
      expect(await askAndSettle(other, ref)).toEqual(missing)
  })

  test("does not affect another person's data", async () => {
    const [name, number, other] = [freshLid(), freshUrn(), freshLid()]
    const bystander = processOver(source(() => foundAs(other, null)))
    const subjectId = subjectIdOf(await askAndSettle(bystander, lid(other)))
    const http = source(() => foundAs(name, number))
    await eraseBetween(http, { asked: lid(name), by: lid(name) })
    expect(await scene.keysOf(subjectId)).toBe(1)
    expect(await askAndSettle(bystander, lid(other))).toMatchObject({ kind: 'found', source: 'cached' })
  })
})

describe('an erasure between recording and the projection', () => {
  test('destroys the key, and suppresses every identifier of the sealed payload', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const { pool } = scene.foundation()
    const holder = await pool.connect()
    const fetching = processOver(source(() => foundAs(name, number)))
    let asking: Promise<Retrieved>
    try {
      await holder.query('begin')
      // The lock stops the projector, so new records reach no table until it is released.
      await holder.query(`lock table ${await profileTables()} in share row exclusive mode`)
      asking = ask(fetching, lid(name))
      expect(await asking).toMatchObject({ kind: 'found' })
      expect(await scene.aliasesOf(lid(name))).toEqual([])
      expect(await scene.erase(lid(name))).toEqual({ subjects: 1, identifiers: 2 })
    } finally {
      await holder.query('rollback')
      holder.release()
    }
    await fetching.close()
    expect(await scene.keysOf(subjectIdOf(await asking))).toBe(0)
    const other = processOver(source(() => down))
    for (const ref of [lid(name), urn(number)]) {
      expect(await suppressed(ref)).toBe(true)
      expect(await askAndSettle(other, ref)).toEqual(missing)
    }
    await vi.waitFor(async () => expect(await scene.aliasesOf(lid(name), urn(number))).toEqual([]), {
      timeout: 30_000,
    })
  })
})

const profileTables = async (): Promise<string> => {
  const { rows } = await scene.foundation().pool.query<{ name: string }>(
    `select distinct format('%I.%I', n.nspname, c.relname) as name
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind = 'r' and c.relname ~ '^profile_(cache|aliases)'`,
  )
  return rows.map(({ name }) => name).join(', ')
}

describe('a former name, after two subjects turned out to be one person', () => {
  /** Records a name without a number. The holder of the name then turns out to be a person already known by a number. */
  const merged = async () => {
    const [former, name, young, number] = [freshLid(), freshLid(), freshLid(), freshUrn()]
    const http = source(() => foundAs(name, number))
    const retrieval = processOver(http)
    const kept = subjectIdOf(await askAndSettle(retrieval, urn(number)))
    http.script = () => foundAs(former, null)
    const letGo = subjectIdOf(await askAndSettle(retrieval, lid(former)))
    expect(letGo).not.toBe(kept)
    scene.move(laterMs)
    http.script = () => foundAs(young, null, { redirected: true })
    expect(subjectIdOf(await askAndSettle(retrieval, lid(former), 'fresh'))).toBe(letGo)
    scene.move(laterMs)
    http.script = () => foundAs(young, number, { redirected: true })
    expect(subjectIdOf(await askAndSettle(retrieval, lid(young), 'fresh'))).toBe(kept)
    return { former, name, young, number, kept, retrieval, http }
  }

  test('leads an erasure to the person with all of their names and their number', async () => {
    const { former, name, young, number, kept, http } = await merged()
    expect(await scene.keysOf(kept)).toBe(1)
    expect(await scene.erase(lid(former))).toEqual({ subjects: 1, identifiers: 4 })
    expect(await scene.keysOf(kept)).toBe(0)
    const asked = http.asked.length
    const other = processOver(http)
    for (const ref of [lid(former), lid(name), lid(young), urn(number)])
      expect(await askAndSettle(other, ref)).toEqual(missing)
    expect(http.asked).toHaveLength(asked)
  })

  test('is suppressed by an erasure under any other name', async () => {
    const { former, young } = await merged()
    expect(await scene.erase(lid(young))).toMatchObject({ identifiers: 4 })
    expect(await suppressed(lid(former))).toBe(true)
  })

  test('does not lead to a person by itself: the source is asked who has it now', async () => {
    const { former, kept, retrieval, http } = await merged()
    http.script = () => foundAs(former, freshUrn(), { firstname: 'Somebody else' })
    const answer = await askAndSettle(retrieval, lid(former))
    expect(answer).toMatchObject({ kind: 'found', data: { firstname: 'Somebody else' } })
    expect(subjectIdOf(answer)).not.toBe(kept)
  })
})

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

describe('an erasure while a caller waits for a fetch by another process', () => {
  test.each(['cached', 'fresh'] as const)(
    'a caller who waits for %s data of an erased person gets "missing", and the source is not asked',
    async (wants) => {
      const name = freshLid()
      const claims = createFetchClaims(scene.foundation().pool)
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
    const claims = createFetchClaims(scene.foundation().pool)
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
})

/** A vault that returns keys only once there are two, so both fetches seal before either records. */
const sealingTogether = (): Vault => {
  const vault = scene.vault()
  const both = Promise.withResolvers<void>()
  let sealed = 0
  return {
    ...vault,
    seal: async (payload) => {
      const result = await vault.seal(payload)
      sealed++
      if (sealed === 2) both.resolve()
      await both.promise
      return result
    },
  }
}

/** Two processes fetch a known person at the same time, one by name and one by number. */
const fetchedBeside = async () => {
  const [name, number] = [freshLid(), freshUrn()]
  const http = source(() => foundAs(name, number))
  const subjectId = subjectIdOf(await askAndSettle(processOver(http), lid(name)))
  scene.move(laterMs)
  const vault = sealingTogether()
  const [byName, byNumber] = [processOver(http, { vault }), processOver(http, { vault })]
  const told = await Promise.all([ask(byName, lid(name), 'fresh'), ask(byNumber, urn(number), 'fresh')])
  await Promise.all([scene.settle(byName), scene.settle(byNumber)])
  expect(told.map(({ kind }) => kind)).toEqual(['found', 'found'])
  expect(told.map(subjectIdOf)).toEqual([subjectId, subjectId])
  expect(http.asked).toHaveLength(3)
  return { name, number, http, subjectId }
}

describe('a person fetched by name and by number at the same time', () => {
  test.each(['name', 'number'] as const)(
    'is served from the cache by %s, without asking the source',
    async (by) => {
      const { name, number, http, subjectId } = await fetchedBeside()
      const answer = await askAndSettle(processOver(http), by === 'name' ? lid(name) : urn(number))
      expect(answer).toMatchObject({ kind: 'found', source: 'cached', data: { firstname: 'Zorvina' } })
      expect(subjectIdOf(answer)).toBe(subjectId)
      expect(http.asked).toHaveLength(3)
    },
  )

  test('keeps no older keys, and after the next fetch only the new one', async () => {
    const { name, http, subjectId } = await fetchedBeside()
    expect(await scene.keysOf(subjectId)).toBe(2)
    scene.move(laterMs)
    await askAndSettle(processOver(http), lid(name), 'fresh')
    expect(await scene.keysOf(subjectId)).toBe(1)
  })

  test('is erased with both keys', async () => {
    const { name, subjectId } = await fetchedBeside()
    await scene.erase(lid(name))
    expect(await scene.keysOf(subjectId)).toBe(0)
  })
})
