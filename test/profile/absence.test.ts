/** A person who is not found is not necessarily gone. It depends on the requested name, the source and the time since the last answer. */
import { describe, expect, test } from 'vitest'
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
const { askAndSettle, foundAs, processOver, source } = scene

/** After this time, fetched data are no longer fresh. */
const laterMs = 2 * 60_000
const unavailable = { kind: 'unavailable', retryAfterSeconds: expect.any(Number) }
const down = { kind: 'transient', detail: 'down' } as const
const notFound = { kind: 'not_found' } as const

const eventsAfter = async (count: number): Promise<string[]> =>
  (await scene.profileEvents()).slice(count).map(({ type }) => type)

describe('a source that cannot look up numbers', () => {
  test('is asked for the name that belongs to the number, and the person does not become deleted', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const page = source(() => foundAs(name, number), { kinds: ['lid'] })
    const retrieval = processOver(page)
    const before = await askAndSettle(retrieval, lid(name))
    scene.move(laterMs)
    expect(await askAndSettle(retrieval, urn(number), 'fresh')).toMatchObject({
      kind: 'found',
      source: 'fresh',
      ageMs: 0,
      subjectId: subjectIdOf(before),
    })
    expect(page.asked).toEqual([lid(name), lid(name)])
    scene.move(29 * dayMs)
    for (const ref of [lid(name), urn(number)])
      expect(await askAndSettle(retrieval, ref)).toMatchObject({ kind: 'found', source: 'cached' })
  })

  test('is not asked about an unknown number, and nothing is recorded', async () => {
    const page = source(() => foundAs(freshLid(), null), { kinds: ['lid'] })
    const retrieval = processOver(page)
    const before = (await scene.profileEvents()).length
    expect(await askAndSettle(retrieval, urn(freshUrn()))).toEqual({ kind: 'missing' })
    expect(page.asked).toEqual([])
    expect(await eventsAfter(before)).toEqual([])
  })

  test('when the lookup by name fails, the call fails and nothing is recorded', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const page = source(() => foundAs(name, number), { kinds: ['lid'] })
    const retrieval = processOver(page)
    await askAndSettle(retrieval, lid(name))
    const before = (await scene.profileEvents()).length
    scene.move(laterMs)
    page.script = () => down
    expect(await askAndSettle(retrieval, urn(number), 'fresh')).toEqual(unavailable)
    expect(await eventsAfter(before)).toEqual([])
    for (const ref of [lid(name), urn(number)])
      expect(await askAndSettle(retrieval, ref)).toMatchObject({ kind: 'found', source: 'cached' })
  })
})

describe('a name that is not found, of a person with a known number', () => {
  test.each([
    ['fails', down],
    ['returns malformed data', { kind: 'malformed', detail: 'json' }],
  ] as const)('while the lookup by number %s: retry later, and nothing is recorded', async (_, byNumber) => {
    const [name, number] = [freshLid(), freshUrn()]
    const http = source(() => foundAs(name, number))
    const retrieval = processOver(http)
    const before = await askAndSettle(retrieval, lid(name))
    const events = (await scene.profileEvents()).length
    scene.move(laterMs)
    http.script = ({ kind }) => (kind === 'lid' ? notFound : byNumber)
    expect(await askAndSettle(retrieval, lid(name), 'fresh')).toEqual(unavailable)
    expect(http.asked.slice(1)).toEqual([lid(name), urn(number)])
    expect(await eventsAfter(events)).toEqual([])
    expect(await scene.keysOf(subjectIdOf(before))).toBe(1)
    for (const ref of [lid(name), urn(number)])
      expect(await askAndSettle(retrieval, ref)).toMatchObject({
        kind: 'found',
        source: 'cached',
        subjectId: subjectIdOf(before),
      })
  })
})

test('only a "not found" from the source that knew the person counts', async () => {
  const name = freshLid()
  const dataset = processOver(source(() => foundAs(name, null), { name: 'dataset' }))
  const before = await askAndSettle(dataset, lid(name))
  expect(before).toMatchObject({ kind: 'found' })
  scene.move(laterMs)
  const http = processOver(source(() => notFound))
  expect(await askAndSettle(http, lid(name), 'fresh')).toEqual({ kind: 'missing' })
  expect(await scene.keysOf(subjectIdOf(before))).toBe(1)
  expect((await scene.profileEvents()).at(-1)?.type).toBe('ProfileMissed')
})

describe('a former name', () => {
  test('that is not found does not delete the person under the current name', async () => {
    const [old, current] = [freshLid(), freshLid()]
    const http = source(() => foundAs(current, null, { redirected: true }))
    const retrieval = processOver(http)
    const before = await askAndSettle(retrieval, lid(old))
    expect(before).toMatchObject({ kind: 'found', ids: { lid: current } })
    scene.move(laterMs)
    http.script = ({ value }) => (value === old ? notFound : foundAs(current, null))
    expect(await askAndSettle(retrieval, lid(old), 'fresh')).toEqual({ kind: 'missing' })
    expect(await askAndSettle(retrieval, lid(current))).toMatchObject({
      kind: 'found',
      source: 'cached',
      subjectId: subjectIdOf(before),
    })
    expect(await scene.keysOf(subjectIdOf(before))).toBe(1)
  })

  test('that its new holder deleted does not delete the person either', async () => {
    const [old, current] = [freshLid(), freshLid()]
    const http = source(() => foundAs(current, null, { redirected: true }))
    const retrieval = processOver(http)
    const before = await askAndSettle(retrieval, lid(old))
    scene.move(laterMs)
    http.script = () => ({ kind: 'gone' })
    expect(await askAndSettle(retrieval, lid(old), 'fresh')).toEqual({ kind: 'missing' })
    expect(await askAndSettle(retrieval, lid(current))).toMatchObject({ kind: 'found' })
    expect(await scene.keysOf(subjectIdOf(before))).toBe(1)
  })

  test('not confirmed within 55 s is fetched again for fresh data: it may belong to someone else by now', async () => {
    const [old, current] = [freshLid(), freshLid()]
    const [number, stranger] = [freshUrn(), freshUrn()]
    const http = source(() => foundAs(old, number))
    const retrieval = processOver(http)
    await askAndSettle(retrieval, lid(old))
    scene.move(5 * dayMs)
    http.script = ({ kind, value }) =>
      kind === 'lid' && value === old
        ? foundAs(old, stranger, { firstname: 'Somebody else' })
        : foundAs(current, number)
    // The person was just fetched by number, under another name.
    expect(await askAndSettle(retrieval, urn(number), 'fresh')).toMatchObject({ ids: { lid: current } })
    const asked = http.asked.length
    scene.move(1_000)
    expect(await askAndSettle(retrieval, lid(old), 'fresh')).toEqual({ kind: 'missing' })
    expect(http.asked.slice(asked)).toContainEqual(lid(old))
    // Afterwards, the name does not lead to its former holder either.
    expect(await askAndSettle(retrieval, lid(old))).toEqual({ kind: 'missing' })
  })
})

describe('how long a known person is treated as gone', () => {
  test.each(['not_found', 'inaccessible'] as const)(
    '%s: for a day, and the cached data stays readable',
    async (kind) => {
      const name = freshLid()
      const http = source(() => foundAs(name, null))
      const retrieval = processOver(http)
      const before = await askAndSettle(retrieval, lid(name))
      const subjectId = subjectIdOf(before)
      scene.move(hourMs)
      http.script = () => ({ kind })
      expect(await askAndSettle(retrieval, lid(name), 'fresh')).toEqual({
        kind: 'deleted',
        subjectId,
        ageMs: 0,
      })
      expect(await scene.keysOf(subjectId)).toBe(1)
      http.script = () => foundAs(name, null)
      scene.move(24 * hourMs)
      expect(await askAndSettle(retrieval, lid(name))).toEqual({
        kind: 'deleted',
        subjectId,
        ageMs: 24 * hourMs,
      })
      expect(http.asked).toHaveLength(2)
      scene.move(1)
      expect(await askAndSettle(retrieval, lid(name))).toMatchObject({
        kind: 'found',
        source: 'fresh',
        subjectId,
      })
      expect(http.asked).toHaveLength(3)
    },
  )

  test('still not found a day later: gone for another day, and the same person when they come back', async () => {
    const name = freshLid()
    const http = source(() => foundAs(name, null))
    const retrieval = processOver(http)
    const subjectId = subjectIdOf(await askAndSettle(retrieval, lid(name)))
    scene.move(hourMs)
    http.script = () => notFound
    await askAndSettle(retrieval, lid(name), 'fresh')
    scene.move(dayMs + 1)
    expect(await askAndSettle(retrieval, lid(name))).toEqual({ kind: 'deleted', subjectId, ageMs: 0 })
    scene.move(dayMs + 1)
    http.script = () => foundAs(name, null)
    expect(await askAndSettle(retrieval, lid(name))).toMatchObject({ kind: 'found', subjectId })
  })

  test('the source reports the person as gone: a tombstone for 30 days, and the data is unreadable immediately', async () => {
    const name = freshLid()
    const http = source(() => foundAs(name, null))
    const retrieval = processOver(http)
    const subjectId = subjectIdOf(await askAndSettle(retrieval, lid(name)))
    scene.move(hourMs)
    http.script = () => ({ kind: 'gone' })
    expect(await askAndSettle(retrieval, lid(name), 'fresh')).toEqual({
      kind: 'deleted',
      subjectId,
      ageMs: 0,
    })
    expect(await scene.keysOf(subjectId)).toBe(0)
    // For 30 days, the name is known to belong to this person.
    scene.move(30 * dayMs - hourMs)
    expect(await askAndSettle(retrieval, lid(name))).toEqual({
      kind: 'deleted',
      subjectId,
      ageMs: 30 * dayMs - hourMs,
    })
    expect(http.asked).toHaveLength(2)
    scene.move(hourMs + 1)
    http.script = () => foundAs(name, null)
    expect(await askAndSettle(retrieval, lid(name))).toMatchObject({ kind: 'found' })
    expect(http.asked).toHaveLength(3)
  })
})
