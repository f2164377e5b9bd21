/** The security events of an account that its owner sees. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { recordOperation } from '../../src/administration/operator-events.ts'
import { accountNotices } from '../../src/administration/users/account-notices.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

/** Returns an event of this type about Ada, based on the sample for the type. */
const eventOf = (type: string, changed: object): DomainEvent => {
  const sample = JSON.parse(
    readFileSync(new URL(`../events/samples/${type}.v1.json`, import.meta.url), 'utf8'),
  )
  return { type, data: { ...sample.data, user: 'ada', ...changed } } as DomainEvent
}

const noticesAfter = async (event: DomainEvent, actor: string): Promise<string[]> => {
  const log = createMemoryEventLog().client('notices')
  await recordOperation(log, event, { actor })
  const pool = { query: async () => ({ rows: [{ position: String(await log.head()) }] }) }
  const parts = { pool, eventLog: log } as unknown as Pick<Foundation, 'pool' | 'eventLog'>
  return (await accountNotices(parts, { user: 'ada', sinceMs: 0, max: 10 })).map(({ says }) => says)
}

test.each([
  ['UserPasswordChanged', {}, 'The password was changed.', 'The password was changed by an operator.'],
  [
    'SecondFactorsRefused',
    { count: 2, reason: 'wrong' },
    '2 codes were refused after the right password.',
    '2 codes were refused after the right password.',
  ],
  [
    'UserSignedIn',
    { known_device: false },
    'There was a sign-in on a new device.',
    'There was a sign-in on a new device.',
  ],
])('%s %j', async (type, changed, byOwner, byOperator) => {
  const event = eventOf(type, changed)
  expect(await noticesAfter(event, 'user:ada')).toEqual([byOwner])
  expect(await noticesAfter(event, 'user:ben')).toEqual([byOperator])
})

test.each([
  ['an event about another person', eventOf('SecondFactorSet', { user: 'ben' })],
  ['a sign-in on a known device', eventOf('UserSignedIn', { known_device: true })],
])('%s is not shown', async (_, event) => {
  expect(await noticesAfter(event, 'user:ben')).toEqual([])
})
