/** An identical append is resent until its outcome is known or the time is over. */
import { beforeEach, describe, expect, test } from 'vitest'
import { appendUntilKnown } from '../../src/event-log/append-until-known.ts'
import { AppendConflict, type NewEvent, Unavailable, UnknownOutcome } from '../../src/event-log/port.ts'
import { type AppendFault, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const stream = 'operator'
const events: NewEvent[] = [
  { id: '11111111-1111-5111-8111-111111111111', type: 'UserSignedIn', data: '{}', metadata: '{}' },
]

let log: MemoryEventLog
let nowMs: number
beforeEach(() => {
  log = createMemoryEventLog()
  nowMs = 0
})

/** Each send takes ten milliseconds on the test's clock. */
const append = (faults: readonly (AppendFault | undefined)[], last?: AppendFault) => {
  const left = [...faults]
  const client = log.client('a', {
    onAppend: () => {
      nowMs += 10
      return left.length === 0 ? last : left.shift()
    },
  })
  return appendUntilKnown(client, stream, 'none', events, {
    unknownMs: 100,
    unavailableMs: 30,
    pauseMs: 0,
    now: () => nowMs,
    onUnknown: () => unknowns++,
  })
}
let unknowns = 0
beforeEach(() => {
  unknowns = 0
})

test.each<[string, AppendFault[]]>([
  ['the reply was lost', ['lose-reply']],
  ['the request was lost, twice', ['lose-request', 'lose-request']],
  ['the log was away for a moment', ['unavailable', 'unavailable']],
  ['nothing was wrong', []],
])('%s: it is written once, by identical appends', async (_, faults) => {
  expect(await append(faults)).toEqual({ revision: 0, repeated: faults[0] === 'lose-reply' })
  expect(log.eventsOf(stream)).toHaveLength(1)
  expect(log.attempts).toHaveLength(faults.length + 1)
  for (const attempt of log.attempts) expect(attempt).toEqual(log.attempts[0])
})

describe('after an unknown outcome', () => {
  test('a refusal of the second copy decides nothing: the append is resent for the longer time', async () => {
    expect(await append(['lose-reply', ...Array<AppendFault>(7).fill('unavailable')])).toEqual({
      revision: 0,
      repeated: true,
    })
    expect(unknowns).toBe(1)
  })

  test('a conflict decides it: another event is in its place', async () => {
    const foreign = [{ ...events[0], id: '22222222-2222-5222-8222-222222222222' }] as NewEvent[]
    const client = log.client('a', {
      onAppend: async () => {
        if (log.attempts.length > 1) return undefined
        await log.client('b').append(stream, 'none', foreign)
        return 'lose-request'
      },
    })
    await expect(appendUntilKnown(client, stream, 'none', events)).rejects.toThrow(AppendConflict)
  })

  test.each<AppendFault>(['lose-reply', 'unavailable'])(
    'and %s until the time is over: unknown, and no more is sent',
    async (fault) => {
      await expect(append(['lose-request'], fault)).rejects.toThrow(UnknownOutcome)
      expect(log.attempts).toHaveLength(10)
    },
  )
})

describe('an append that was certainly not written', () => {
  test('is tried again for the shorter time, and then fails', async () => {
    await expect(append([], 'unavailable')).rejects.toThrow(Unavailable)
    expect(log.attempts).toHaveLength(3)
  })

  test('because it is invalid fails immediately', async () => {
    const client = log.client('a')
    await expect(appendUntilKnown(client, '$system', 'none', events)).rejects.toThrow(TypeError)
  })
})
