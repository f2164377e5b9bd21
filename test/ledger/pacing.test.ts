/** A process pauses between appends, so that other processes can append to the same ledger. The rules are pure. */
import { expect, test } from 'vitest'
import { createPacing } from '../../src/ledger/write/writer.ts'

test('a process that has noticed no other process never waits', () => {
  const pacing = createPacing(() => 0.5)
  for (let nowMs = 0; nowMs < 100; nowMs++) {
    pacing.appended(nowMs)
    expect(pacing.waitMs(nowMs)).toBe(0)
  }
})

test('for two seconds after another process was noticed, each append is followed by a pause', () => {
  const pacing = createPacing(() => 0.5)
  pacing.competed(1_000)
  pacing.appended(1_001)
  expect(pacing.waitMs(1_001)).toBe(3.5)
  expect(pacing.waitMs(1_003)).toBe(1.5)
  pacing.appended(2_999)
  expect(pacing.waitMs(2_999)).toBe(3.5)
  pacing.appended(3_001)
  expect(pacing.waitMs(3_003)).toBe(0)
})

test('one pause in eight is long', () => {
  const draws = [0.12, 0.9, 0.5]
  const pacing = createPacing(() => draws.shift() ?? 0)
  pacing.competed(0)
  pacing.appended(1)
  expect(pacing.waitMs(1)).toBe(60)
  pacing.appended(2)
  expect(pacing.waitMs(2)).toBe(3.5)
})

test('a process whose append conflicted tries again immediately, and notifies the others if that conflicts too, at most twice a second', () => {
  const pacing = createPacing(() => 0.5)
  pacing.competed(0)
  pacing.appended(1)
  expect(pacing.lost(2)).toEqual({ notify: false })
  expect(pacing.waitMs(2)).toBe(0)
  expect(pacing.lost(3)).toEqual({ notify: true })
  expect(pacing.lost(100)).toEqual({ notify: false })
  expect(pacing.lost(503)).toEqual({ notify: true })
  pacing.appended(1_100)
  expect(pacing.lost(1_101)).toEqual({ notify: false })
  expect(pacing.lost(1_102)).toEqual({ notify: true })
})
