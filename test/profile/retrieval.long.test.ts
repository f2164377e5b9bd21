/** A profile comes from the cache or the upstream, or is not found. */
import { describe, expect, test, vi } from 'vitest'
import { dropOldProfiles } from '../../src/capabilities/profile/record/erase.ts'
import type { Retrieval } from '../../src/capabilities/profile/record/retrieval.ts'
import {
  dayMs,
  freshLid,
  freshUrn,
  hourMs,
  lid,
  retrievalScene,
  subjectIdOf,
  urn,
} from './retrieval-scene.ts'

const scene = retrievalScene()
const { ask, askAndSettle, foundAs, processOver, settle, source } = scene

describe('freshness', () => {
  test('data of exactly 720 hours is served; a millisecond older is not, not even if the upstream fails', async () => {
    const id = freshLid()
    const http = source(() => foundAs(id, null))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(id))
    http.script = () => ({ kind: 'transient', detail: 'down' })
    scene.move(720 * hourMs)
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found', ageMs: 720 * hourMs })
    scene.move(1)
    expect(await askAndSettle(retrieval, lid(id))).toEqual({
      kind: 'unavailable',
      retryAfterSeconds: expect.any(Number),
    })
  })

  test('a fetch 55 seconds ago is fresh; 56 seconds ago is not', async () => {
    const id = freshLid()
    const http = source(() => foundAs(id, null))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(id), 'fresh')
    scene.move(55_000)
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toMatchObject({ source: 'fresh', ageMs: 55_000 })
    expect(http.asked).toHaveLength(1)
    scene.move(1_000)
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toMatchObject({ source: 'fresh', ageMs: 0 })
    expect(http.asked).toHaveLength(2)
  })

  test('an upstream whose data is older than a minute serves no caller who asks for fresh data', async () => {
    const id = freshLid()
    const retrieval = processOver(source(() => foundAs(id, null, { observedAtMs: scene.now() - 61_000 })))
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toMatchObject({ kind: 'unavailable' })
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({
      kind: 'found',
      source: 'cached',
      ageMs: 61_000,
    })
  })

  test('"not found" is trusted for a day for cached answers, and for 55 s for fresh ones', async () => {
    const id = freshLid()
    const http = source(() => ({ kind: 'not_found' }))
    const retrieval = processOver(http)
    expect(await askAndSettle(retrieval, lid(id))).toEqual({ kind: 'missing' })
    scene.move(55_000)
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toEqual({ kind: 'missing' })
    expect(http.asked).toHaveLength(1)
    scene.move(1_000)
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toEqual({ kind: 'missing' })
    expect(http.asked).toHaveLength(2)
    scene.move(24 * hourMs + 1)
    http.script = () => foundAs(id, null)
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found' })
  })

  test.each([
    ['late', { kind: 'transient', detail: 'timeout' }, 5],
    ['asking us to wait', { kind: 'rate_limited', retryAfterSeconds: 17 }, 17],
    ['down until a given time', { kind: 'transient', detail: 'status 503', retryAfterSeconds: 90 }, 90],
  ] as const)(
    'an upstream that is %s leaves no trace: the next call asks again',
    async (_, answer, seconds) => {
      const id = freshLid()
      const http = source(() => answer)
      const retrieval = processOver(http)
      expect(await askAndSettle(retrieval, lid(id))).toEqual({
        kind: 'unavailable',
        retryAfterSeconds: seconds,
      })
      http.script = () => foundAs(id, null)
      expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found' })
    },
  )
})

describe('one fetch for all callers', () => {
  test('1,000 concurrent callers in two processes cause one upstream request', async () => {
    const id = freshLid()
    const answering = Promise.withResolvers<void>()
    const http = source(async () => {
      await answering.promise
      return foundAs(id, null)
    })
    // If the projector is late, the service prefers a second request to a longer wait.
    const patient = { visibleMaxMs: 60_000 }
    const processes = [processOver(http, patient), processOver(http, patient)]
    const callers = Array.from({ length: 1_000 }, (_, n) =>
      ask(processes[n % 2] as Retrieval, lid(id), 'fresh'),
    )
    await vi.waitFor(() => expect(http.asked).toHaveLength(1), { timeout: 30_000 })
    answering.resolve()
    const answers = await Promise.all(callers)
    expect(answers.filter((answer) => answer.kind === 'found' && answer.source === 'fresh')).toHaveLength(
      1_000,
    )
    expect(http.asked).toHaveLength(1)
    await Promise.all(processes.map((one) => one.close()))
  })

  test('a caller who runs out of time is asked to retry, and the fetch continues into the cache', async () => {
    const id = freshLid()
    const answering = Promise.withResolvers<void>()
    const http = source(async () => {
      await answering.promise
      return foundAs(id, null)
    })
    const retrieval = processOver(http, { answerMaxMs: 1_000 })
    expect(await ask(retrieval, lid(id))).toMatchObject({ kind: 'unavailable' })
    answering.resolve()
    await settle(retrieval)
    expect(await ask(retrieval, lid(id))).toMatchObject({ kind: 'found', source: 'cached' })
  })

  test('a claim left behind by a dead process expires', async () => {
    const id = freshLid()
    await scene
      .foundation()
      .pool.query(
        `insert into profile_fetches (claim, holder, until) values ($1, 'dead', now() + interval '300 ms')`,
        [scene.hmacOf(lid(id))],
      )
    const retrieval = processOver(source(() => foundAs(id, null)))
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found' })
  })

  test('a caller who arrives after a failed fetch asks again, even while that fetch releases its claim', async () => {
    const id = freshLid()
    const lock = await scene.foundation().pool.connect()
    const http = source(async () => {
      await lock.query('begin')
      await lock.query('lock table profile_fetches')
      return { kind: 'transient', detail: 'down' }
    })
    const retrieval = processOver(http)
    try {
      expect(await ask(retrieval, lid(id))).toMatchObject({ kind: 'unavailable' })
      http.script = () => foundAs(id, null)
      const second = ask(retrieval, lid(id))
      const third = ask(retrieval, lid(id))
      const waiting = `select from pg_locks where relation = 'profile_fetches'::regclass and not granted`
      await vi.waitFor(async () => expect((await lock.query(waiting)).rows.length).toBeGreaterThan(1), {
        timeout: 30_000,
      })
      await lock.query('rollback')
      expect(await Promise.all([second, third])).toMatchObject([{ kind: 'found' }, { kind: 'found' }])
    } finally {
      lock.release()
    }
    expect(http.asked).toHaveLength(2)
    await retrieval.close()
  })
})

describe('the person whose data is returned', () => {
  test('an answer about another person counts as "not found"', async () => {
    const [name, other] = [freshLid(), freshLid()]
    const retrieval = processOver(source(() => foundAs(other, null)))
    expect(await askAndSettle(retrieval, lid(name))).toEqual({ kind: 'missing' })
    const wrongNumber = processOver(source(() => foundAs(other, freshUrn())))
    expect(await askAndSettle(wrongNumber, urn(freshUrn()))).toEqual({ kind: 'missing' })
  })

  test('a name taken over by another person leads neither to its former owner nor to the new one', async () => {
    const [name, number, stranger] = [freshLid(), freshUrn(), freshUrn()]
    const http = source(() => foundAs(name, number))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(name))
    http.script = () => foundAs(name, stranger, { firstname: 'Somebody else' })
    scene.move(hourMs)
    expect(await askAndSettle(retrieval, lid(name), 'fresh')).toEqual({ kind: 'missing' })
    expect(await askAndSettle(retrieval, lid(name))).toEqual({ kind: 'missing' })
    expect(await askAndSettle(retrieval, urn(number))).toMatchObject({ data: { firstname: 'Zorvina' } })
    expect(await askAndSettle(retrieval, urn(stranger))).toMatchObject({
      data: { firstname: 'Somebody else' },
    })
  })

  test('a renamed person is found by the old name and by the new one', async () => {
    const [old, young, number] = [freshLid(), freshLid(), freshUrn()]
    const http = source(() => foundAs(old, number))
    const retrieval = processOver(http)
    const before = await askAndSettle(retrieval, lid(old))
    http.script = () => foundAs(young, number)
    scene.move(hourMs)
    const renamed = await askAndSettle(retrieval, lid(old), 'fresh')
    expect(renamed).toMatchObject({ kind: 'found', ids: { lid: young } })
    expect(await askAndSettle(retrieval, lid(young))).toMatchObject({
      source: 'cached',
      subjectId: subjectIdOf(before),
    })
  })

  test('a person whose name is not found is looked up by number before they count as gone', async () => {
    const [old, young, number] = [freshLid(), freshLid(), freshUrn()]
    const http = source(() => foundAs(old, number))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(old))
    http.script = ({ kind }) => (kind === 'urn' ? foundAs(young, number) : { kind: 'not_found' })
    scene.move(hourMs)
    expect(await askAndSettle(retrieval, lid(old), 'fresh')).toMatchObject({
      kind: 'found',
      ids: { lid: young },
    })
  })
})

describe('erasure', () => {
  test('reaches a person by any identifier, immediately and permanently', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const http = source(() => foundAs(name, number))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(name))
    expect(await scene.erase(urn(number))).toEqual({ subjects: 1, identifiers: 2 })
    for (const ref of [lid(name), urn(number)])
      for (const wants of ['cached', 'fresh'] as const)
        expect(await askAndSettle(retrieval, ref, wants)).toEqual({ kind: 'missing' })
    expect(http.asked).toHaveLength(1)
  })

  test('wins against a running fetch: nothing of it is stored or served', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const answering = Promise.withResolvers<void>()
    const http = source(async () => {
      await answering.promise
      return foundAs(name, number)
    })
    const retrieval = processOver(http)
    const asking = ask(retrieval, lid(name))
    await vi.waitFor(() => expect(http.asked).toHaveLength(1), { timeout: 30_000 })
    await scene.erase(lid(name))
    answering.resolve()
    expect(await asking).toEqual({ kind: 'missing' })
    await retrieval.close()
    expect(await scene.aliasesOf(lid(name))).toEqual([])
  })

  test('keys older than 30 days are deleted, together with the data they opened', async () => {
    const name = freshLid()
    const http = source(() => foundAs(name, null))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(name))
    scene.move(30 * dayMs + 1)
    const { eventLog, pool } = scene.foundation()
    while ((await dropOldProfiles({ eventLog, vault: scene.vault(), clock: scene })) > 0) {
      // The loop ends when no batch is left.
    }
    const { rows } = await pool.query('select 1 from profile_keys')
    expect(rows).toEqual([])
    http.script = () => foundAs(name, null)
    expect(await askAndSettle(retrieval, lid(name))).toMatchObject({ kind: 'found', source: 'fresh' })
  })

  test('data that is fetched while the old data is being dropped stays readable', async () => {
    const name = freshLid()
    const number = freshUrn()
    const http = source(() => foundAs(name, number))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(name))
    scene.move(30 * dayMs + 1)
    const { eventLog } = scene.foundation()
    const vault = scene.vault()
    const olderThan: typeof vault.olderThan = async (...asked) => {
      const old = await vault.olderThan(...asked)
      await askAndSettle(retrieval, lid(name))
      return old
    }
    await dropOldProfiles({ eventLog, vault: { ...vault, olderThan }, clock: scene })
    const again = await askAndSettle(retrieval, lid(name))
    expect(again).toMatchObject({ kind: 'found', source: 'cached' })
    const erased = (await scene.profileEvents()).filter(({ type }) => type === 'ProfileErased')
    expect(
      erased.filter(({ data }) => 'subject_id' in data && data.subject_id === subjectIdOf(again)),
    ).toEqual([])
    expect(await scene.keysOf(subjectIdOf(again))).toBe(1)
    expect(http.asked).toHaveLength(2)
  })
})

describe('a source that allows two concurrent requests', () => {
  test('an organization with one request waits for one answer, however many requests another organization has', async () => {
    const releases: (() => void)[] = []
    const http = source(async (ref) => {
      await new Promise<void>((resolve) => releases.push(resolve))
      return foundAs(ref.value, null)
    })
    const retrieval = processOver(http, { fetchesMax: 2 })
    const flood = Array.from({ length: 20 }, () => ask(retrieval, lid(freshLid()), 'cached', 'org_flood'))
    await vi.waitUntil(() => releases.length === 2, 30_000)
    const one = freshLid()
    const quiet = ask(retrieval, lid(one), 'cached', 'org_quiet')
    // The cache look-up of `quiet` started before this one, so `quiet` is in the queue afterwards.
    await expect(retrieval.retrieve(lid(freshLid()), { ...asks, upstream: false })).resolves.toBeDefined()
    releases.shift()?.()
    await vi.waitUntil(() => http.asked.length === 3, 30_000)
    expect(http.asked[2]).toEqual(lid(one))
    const end = setInterval(() => {
      for (const release of releases.splice(0)) release()
    }, 1)
    expect(await quiet).toMatchObject({ kind: 'found', ids: { lid: one } })
    const told = await Promise.all(flood)
    clearInterval(end)
    // On a slow machine, some callers may have waited too long and are asked to retry.
    for (const { kind } of told) expect(['found', 'unavailable']).toContain(kind)
    await retrieval.close()
  })
})

const asks = { wants: 'cached', organizationId: 'org_quiet', beforeUpstream: async () => null } as const
