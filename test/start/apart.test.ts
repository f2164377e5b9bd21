/** If processes count rate limits separately, a warning names them and the remedy. */
import { expect, test } from 'vitest'
import { countingApart } from '../../src/administration/checks/database.ts'

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
    says === null ? null : `each of ${says} processes counts alone; set REDIS_URL to one Redis for all`,
  )
})
