import { expect, test } from 'vitest'
import { createOutage } from '../../src/concurrency/outage.ts'

/** An outage with a clock that the test sets. How often failures are logged must depend on time, not on their number. */
const scene = () => {
  const logged: string[] = []
  let nowMs = 0
  const say = (level: string) => (fields: object, message?: string) =>
    void logged.push(`${nowMs / 1_000} ${level} ${message} ${'failures' in fields ? fields.failures : ''}`)
  const outage = createOutage({
    logger: { info: say('info'), warn: say('warn'), error: say('error') } as never,
    what: 'reading',
    clock: { now: () => nowMs },
  })
  return {
    logged,
    outage,
    /** Reports four failures a second. */
    failFor: (seconds: number) => {
      for (const end = nowMs + seconds * 1_000; nowMs < end; nowMs += 250) outage.failed(new Error('away'))
    },
    pass: (seconds: number) => {
      nowMs += seconds * 1_000
    },
  }
}

test('a failing loop is logged immediately, then once a minute, and when it works again', () => {
  const { logged, outage, failFor } = scene()
  outage.works()
  failFor(150)
  outage.works()
  outage.works()
  expect(logged).toEqual([
    '0 warn reading fails, trying again 1',
    '60 warn reading fails, trying again 241',
    '120 warn reading fails, trying again 481',
    '150 info reading works again 600',
  ])
})

test('an intermittent failure is logged five times a minute, and its end is always logged', () => {
  const { logged, outage, pass } = scene()
  for (let i = 0; i < 200; i++) {
    outage.failed(new Error('away'))
    outage.works()
    pass(0.25)
  }
  expect(logged.length).toBe(10)
  expect(logged.at(-1)).toContain('info reading works again')
})

test('without a success report, a minute without a failure is the end of the outage', () => {
  const { logged, outage, failFor, pass } = scene()
  failFor(1)
  pass(3_600)
  outage.failed(new Error('away'))
  expect(logged).toEqual(['0 warn reading fails, trying again 1', '3601 warn reading fails, trying again 1'])
})
