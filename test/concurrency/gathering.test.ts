import { describe, expect, test } from 'vitest'
import { createGathering, type GatheringOptions } from '../../src/concurrency/gathering.ts'

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
const refusal = (why: string): Error => new Error(why)

/** Each run lasts until the test ends it. `taken` contains the questions of each run. */
const scene = (more: Partial<GatheringOptions<number, string>> = {}) => {
  const taken: (readonly number[])[] = []
  const runs: PromiseWithResolvers<void>[] = []
  const gathering = createGathering<number, string>({
    batchMax: 3,
    underWayMax: 1,
    waitingMax: 5,
    refusal,
    run: async (take) => {
      const asks = take()
      taken.push(asks)
      const end = Promise.withResolvers<void>()
      runs.push(end)
      await end.promise
      return asks.map((ask) => `answer ${ask}`)
    },
    ...more,
  })
  return { gathering, taken, runs }
}

describe('a gathering', () => {
  test('takes the questions of one turn together, in order, up to the maximum for one run', async () => {
    const { gathering, taken, runs } = scene()
    const answers = [1, 2, 3, 4].map(gathering.ask)
    await turn()
    expect(taken).toEqual([[1, 2, 3]])
    runs[0]?.resolve()
    expect(await Promise.all(answers.slice(0, 3))).toEqual(['answer 1', 'answer 2', 'answer 3'])
    await turn()
    expect(taken).toEqual([[1, 2, 3], [4]])
    runs[1]?.resolve()
    expect(await answers[3]).toBe('answer 4')
    await gathering.settled()
  })

  test('has as many runs in progress as allowed, and gathers more during them', async () => {
    const { gathering, taken } = scene({ underWayMax: 2 })
    for (const ask of [1, 2, 3, 4]) void gathering.ask(ask)
    await turn()
    await turn()
    void gathering.ask(5)
    void gathering.ask(6)
    await turn()
    expect(taken).toEqual([[1, 2, 3], [4]])
  })

  test('immediately refuses a question above the limit of waiting ones', async () => {
    const { gathering } = scene()
    for (const ask of [1, 2, 3, 4, 5]) void gathering.ask(ask)
    await expect(gathering.ask(6)).rejects.toThrow('full')
  })

  test('refuses a question that waited too long, without running it', async () => {
    const { gathering, taken, runs } = scene({ waitMaxMs: 0 })
    await expect(gathering.ask(1)).rejects.toThrow('late')
    expect(taken).toEqual([[]])
    runs[0]?.resolve()
    await gathering.settled()
  })

  test('fails the questions whose run fails, and no other', async () => {
    const { gathering, runs } = scene()
    const answers = [1, 2, 3, 4].map(gathering.ask)
    const outcomes = Promise.allSettled(answers)
    await turn()
    runs[0]?.reject(new Error('broken'))
    await turn()
    await turn()
    runs[1]?.resolve()
    expect((await outcomes).map(({ status }) => status)).toEqual([
      'rejected',
      'rejected',
      'rejected',
      'fulfilled',
    ])
  })

  test('fails everyone who waits if a run took no question, or if the failure applies to all', async () => {
    const broken = new Error('broken')
    const without = scene({ run: () => Promise.reject(broken) }).gathering
    const one = await Promise.allSettled([1, 2, 3, 4, 5].map(without.ask))
    expect(one.every(({ status }) => status === 'rejected')).toBe(true)
    await without.settled()

    const { gathering, runs } = scene({ failsAll: (error) => error === broken })
    const outcomes = Promise.allSettled([1, 2, 3, 4].map(gathering.ask))
    await turn()
    runs[0]?.reject(broken)
    expect((await outcomes).every(({ status }) => status === 'rejected')).toBe(true)
    const again = gathering.ask(5)
    await turn()
    runs[1]?.resolve()
    expect(await again).toBe('answer 5')
  })

  test('a run that does not give one answer for each question fails', async () => {
    const { gathering } = scene({ run: async (take) => [...take().map(String), 'more'] })
    await expect(gathering.ask(1)).rejects.toThrow('a run returned 2 answers for 1 requests')
  })

  test('is settled when nothing waits and nothing is in progress', async () => {
    const { gathering, runs } = scene()
    await gathering.settled()
    let settled = false
    const answer = gathering.ask(1)
    void gathering.settled().then(() => {
      settled = true
    })
    await turn()
    expect(settled).toBe(false)
    runs[0]?.resolve()
    await answer
    await turn()
    expect(settled).toBe(true)
  })
})
