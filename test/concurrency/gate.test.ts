import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createGate } from '../../src/concurrency/gate.ts'

const lines: [level: string, message: string, refused: unknown][] = []
const line = (level: string) => (fields: object, message: string) =>
  void lines.push([level, message, Object(fields).refused])
const logger = { info: line('info'), error: line('error') }
let server: 'answers' | 'hangs' | 'refuses'
let questions = 0
const hanging: (() => void)[] = []
const ask = (): Promise<void> => {
  questions += 1
  if (server === 'answers') return Promise.resolve()
  if (server === 'refuses') return Promise.reject(new Error('ECONNREFUSED'))
  return new Promise((resolve) => hanging.push(resolve))
}
const gateOf = () => createGate({ what: 'the server', ask, logger, now: () => Date.now() })

beforeEach(() => {
  vi.useFakeTimers()
  server = 'answers'
  questions = 0
  lines.length = 0
  hanging.length = 0
})
afterEach(() => {
  vi.useRealTimers()
})

const forever = (): Promise<never> => new Promise(() => undefined)

test('the server is not asked while work ends, and slow work alone does not shut the gate', async () => {
  const gate = gateOf()
  for (let n = 0; n < 20; n++) {
    await gate.watch(Promise.resolve())
    await vi.advanceTimersByTimeAsync(300)
  }
  expect(questions).toBe(0)
  void gate.watch(forever())
  await vi.advanceTimersByTimeAsync(5_000)
  expect(questions).toBe(5)
  expect(gate.refuses()).toBeNull()
  expect(lines).toEqual([])
  gate.close()
})

test('if no work ends and the server does not answer, the gate shuts within six and a half seconds', async () => {
  const gate = gateOf()
  server = 'hangs'
  void gate.watch(forever())
  await vi.advanceTimersByTimeAsync(5_900)
  expect(gate.refuses()).toBeNull()
  await vi.advanceTimersByTimeAsync(600)
  expect(gate.refuses()).toBe(6_500)
  expect(questions).toBe(1)
  gate.close()
})

test('a question that never ends is not repeated; its late answer opens the gate', async () => {
  const gate = gateOf()
  server = 'hangs'
  void gate.watch(forever())
  await vi.advanceTimersByTimeAsync(30_000)
  expect([questions, gate.shutForMs() === null]).toEqual([1, false])
  hanging[0]?.()
  await vi.advanceTimersByTimeAsync(0)
  expect(gate.shutForMs()).toBeNull()
  gate.close()
})

test('opens within half a second of the first answer, also without traffic, and logs how much it refused', async () => {
  const gate = gateOf()
  server = 'refuses'
  await gate.watch(Promise.reject(new Error('ECONNREFUSED'))).catch(() => undefined)
  void gate.watch(forever())
  await vi.advanceTimersByTimeAsync(10_000)
  for (let n = 0; n < 3; n++) gate.refuses()
  server = 'answers'
  await vi.advanceTimersByTimeAsync(500)
  expect(gate.refuses()).toBeNull()
  expect(lines).toEqual([
    ['error', 'the server does not answer; until it does, requests that need it are refused', undefined],
    ['info', 'the server answers again', 3],
  ])
  gate.close()
})

test('a line a minute reports that the gate is still shut', async () => {
  const gate = gateOf()
  server = 'refuses'
  void gate.watch(forever())
  await vi.advanceTimersByTimeAsync(130_000)
  expect(lines.map(([level, message]) => [level, message.replace(/;.*/, '')])).toEqual([
    ['error', 'the server does not answer'],
    ['error', 'the server still does not answer'],
    ['error', 'the server still does not answer'],
  ])
  gate.close()
})

test('a part of the server that still works neither keeps the gate open nor opens it', async () => {
  const gate = gateOf()
  server = 'hangs'
  void gate.watch(forever())
  for (let n = 0; n < 70; n++) {
    await gate.watch(Promise.resolve())
    await vi.advanceTimersByTimeAsync(100)
  }
  expect(gate.shutForMs()).toBe(7_000)
  gate.close()
})

test('a server that refuses every connection shuts the gate, although every attempt ends quickly', async () => {
  const gate = gateOf()
  server = 'refuses'
  for (let n = 0; n < 30 && gate.shutForMs() === null; n++) {
    await gate.watch(Promise.reject(new Error('ECONNREFUSED'))).catch(() => undefined)
    await vi.advanceTimersByTimeAsync(50)
  }
  expect(gate.shutForMs()).not.toBeNull()
  gate.close()
})
