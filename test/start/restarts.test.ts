/** When an api process that ended is started again. */
import { expect, test } from 'vitest'
import { afterEnd, isHopeless, pauseMsAfter, untried } from '../../src/start/restarts.ts'

/** After so many ends, each after having answered so long. */
const after = (...answered: (number | null)[]) => answered.reduce(afterEnd, untried)

test('pauses double from a quarter of a second to half a minute, and stay there', () => {
  const pauses = Array.from({ length: 12 }, (_, ends) => pauseMsAfter(after(...Array(ends + 1).fill(10))))
  expect(pauses).toEqual([250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, ...Array(5).fill(30_000)])
  expect(pauseMsAfter({ ends: 1e6, failedStarts: 0 })).toBe(30_000)
})

test('a minute of answers makes the next end the first one', () => {
  expect(pauseMsAfter(after(1, 1, 1, 60_000))).toBe(250)
  expect(pauseMsAfter(after(1, 1, 1, 59_999))).toBe(2_000)
})

test.each([
  { name: 'four failed starts', ends: [null, null, null, null], starting: true, others: false, is: false },
  { name: 'five, while starting', ends: Array(5).fill(null), starting: true, others: true, is: true },
  { name: 'five, and others answer', ends: Array(5).fill(null), starting: false, others: true, is: false },
  {
    name: 'five, and no other one answers',
    ends: Array(5).fill(null),
    starting: false,
    others: false,
    is: true,
  },
  {
    name: 'an answer among them',
    ends: [null, null, 5, null, null],
    starting: true,
    others: false,
    is: false,
  },
  { name: 'ends after answering', ends: Array(9).fill(5), starting: false, others: false, is: false },
])('$name: given up is $is', ({ ends, starting, others, is }) => {
  expect(isHopeless(after(...ends), { starting, othersAnswer: others })).toBe(is)
})
