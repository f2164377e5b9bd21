/** If processes count rate limits separately, a warning names them and the remedy. */
import { expect, test, vi } from 'vitest'
import { countingApart } from '../../src/administration/checks/database.ts'
import { warnOfApart } from '../../src/start/app.ts'

const counting = (...counters: string[]) => counters.map((one) => ({ counters: one, roles: ['api'] }))

test.each([
  { name: 'none', processes: [], says: null },
  { name: 'one', processes: counting('a'), says: null },
  { name: 'all in Redis', processes: counting('redis', 'redis'), says: null },
  { name: 'two that were started', processes: counting('a', 'b'), says: 2 },
  { name: 'one without Redis among others', processes: counting('redis', 'redis', 'c'), says: 2 },
  {
    name: 'one that takes no calls',
    processes: [...counting('a'), { counters: 'b', roles: ['jobs'] }],
    says: null,
  },
])('$name', ({ processes, says }) => {
  expect(countingApart(processes)).toBe(
    says === null
      ? null
      : `each of ${says} processes keeps its own counts; set REDIS_URL to the same Redis for all processes`,
  )
})

test('it is logged once when it begins, and once when it is over', () => {
  vi.useFakeTimers()
  try {
    const logged: string[] = []
    let processes = counting('a', 'b')
    const logger = { warn: (text: string) => logged.push(text), info: (text: string) => logged.push(text) }
    const own = { known: () => processes }
    const end = warnOfApart(own as never, logger as never)
    vi.advanceTimersByTime(60_000)
    expect(logged).toEqual([
      'rate limits: each of 2 processes keeps its own counts; set REDIS_URL to the same Redis for all processes',
    ])
    processes = counting('a')
    vi.advanceTimersByTime(60_000)
    expect(logged.slice(1)).toEqual(['rate limits: all processes count together again'])
    end()
    processes = counting('a', 'b')
    vi.advanceTimersByTime(60_000)
    expect(logged).toHaveLength(2)
  } finally {
    vi.useRealTimers()
  }
})
