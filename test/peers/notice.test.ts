import { expect, test } from 'vitest'
import { sharedLogger } from '../../src/peers/notice.ts'

test('what all connections together have to say is bounded in a minute, and what was not said is counted', () => {
  const said: object[] = []
  const say = (fields: object): void => void said.push(fields)
  let nowMs = 0
  const logger = sharedLogger({ info: say, warn: say, error: say }, { now: () => nowMs })
  for (let n = 0; n < 300; n++) logger[n % 2 === 0 ? 'warn' : 'info']({ n }, 'the connection to … fails')
  expect(said).toEqual(Array.from({ length: 20 }, (_, n) => ({ n })))
  nowMs = 60_000
  logger.error({ n: 300 }, 'the connection to … fails')
  logger.warn({ n: 301 }, 'the connection to … fails')
  expect(said.slice(20)).toEqual([{ n: 300, suppressed: 280 }, { n: 301 }])
})
