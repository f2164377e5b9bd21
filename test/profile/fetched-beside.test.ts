/** If a person is fetched by name and by number at the same time, the data that are recorded last can be read. */
import { describe, expect, test } from 'vitest'
import type { Vault } from '../../src/capabilities/profile/record/vault.ts'
import { freshLid, freshUrn, lid, retrievalScene, subjectIdOf, urn } from './retrieval-scene.ts'

const scene = retrievalScene()
const { ask, askAndSettle, foundAs, processOver, source } = scene

const laterMs = 2 * 60_000

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
  await Promise.all([byName.close(), byNumber.close()])
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
