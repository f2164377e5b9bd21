/** Two fetches of one person under a name and a number, beside each other: what is recorded last can be read. */
import { describe, expect, test } from 'vitest'
import type { Vault } from '../../src/capabilities/profile/record/vault.ts'
import { freshLid, freshUrn, lid, retrievalScene, subjectIdOf, urn } from './retrieval-scene.ts'

const scene = retrievalScene()
const { ask, askAndSettle, foundAs, processOver, source } = scene

const laterMs = 2 * 60_000

/** A vault whose keys are handed out when two are there: neither fetch records before the other has sealed. */
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

/** Somebody known, then fetched under their name and under their number at once, by two processes. */
const fetchedBeside = async () => {
  const [name, number] = [freshLid(), freshUrn()]
  const http = source(() => foundAs(name, number))
  const subjectId = subjectIdOf(await askAndSettle(processOver([http]), lid(name)))
  scene.move(laterMs)
  const vault = sealingTogether()
  const [byName, byNumber] = [processOver([http], { vault }), processOver([http], { vault })]
  const told = await Promise.all([ask(byName, lid(name), 'fresh'), ask(byNumber, urn(number), 'fresh')])
  await Promise.all([byName.close(), byNumber.close()])
  expect(told.map(({ kind }) => kind)).toEqual(['found', 'found'])
  expect(told.map(subjectIdOf)).toEqual([subjectId, subjectId])
  expect(http.asked).toHaveLength(3)
  return { name, number, http, subjectId }
}

describe('a person fetched under name and number at once', () => {
  test.each(['name', 'number'] as const)(
    'is served from the cache by %s, and nobody is asked',
    async (by) => {
      const { name, number, http, subjectId } = await fetchedBeside()
      const answer = await askAndSettle(processOver([http]), by === 'name' ? lid(name) : urn(number))
      expect(answer).toMatchObject({ kind: 'found', source: 'cached', data: { firstname: 'Zorvina' } })
      expect(subjectIdOf(answer)).toBe(subjectId)
      expect(http.asked).toHaveLength(3)
    },
  )

  test('leaves the key of nothing older, and after the next fetch only that one’s', async () => {
    const { name, http, subjectId } = await fetchedBeside()
    expect(await scene.keysOf(subjectId)).toBe(2)
    scene.move(laterMs)
    await askAndSettle(processOver([http]), lid(name), 'fresh')
    expect(await scene.keysOf(subjectId)).toBe(1)
  })

  test('is forgotten with both keys', async () => {
    const { name, subjectId } = await fetchedBeside()
    await scene.erase(lid(name))
    expect(await scene.keysOf(subjectId)).toBe(0)
  })
})
