/** Input of any length that a declaration accepts also works on the dashboard, where the input is a part of the id of the work. */
import { ulid } from 'ulid'
import { afterAll, expect, test } from 'vitest'
import { declarationNamed } from '../../src/administration/declarations.ts'
import type { Given } from '../../src/administration/declare.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import { openDashboardHost, signedIn, userWhoChose } from '../dashboard/dashboard-host.ts'
import { openPartner } from '../support/partners.ts'
import { environment, onDashboard } from './interfaces.ts'

const daysAgo = (days: number): string => new Date(Date.now() - days * 86_400_000).toISOString().slice(0, 10)

const room = await openDashboardHost({ environment })
afterAll(() => room.close())

test('a long list of calls, and a whole price book', async () => {
  const user = await userWhoChose(room, { name: 'ada', role: 'admin', organizationId: null })
  const browser = await signedIn(room, user)
  const { keyId, organizationId } = await openPartner(room.foundation)
  await room.caughtUp()
  const calls = Array.from({ length: 200 }, () => ulid())
  const given: readonly [string, Given, number[]][] = [
    ['ledger reverse', { requests: calls.join('\n') }, [200, 200]],
    [
      'credits refund-calls',
      { key: keyId, requests: calls, reason: 'outage', reference: 'OUT-1' },
      [200, 200],
    ],
    // The work finds no calls to plan for.
    [
      'rerate plan',
      { book: defaultPriceBook.rules, from: daysAgo(10), to: daysAgo(1), reason: 'new' },
      [422],
    ],
  ]
  for (const [name, input, answered] of given) {
    const pages = await onDashboard({ browser }, declarationNamed(name), input, organizationId)
    expect([name, pages.map(({ statusCode }) => statusCode)]).toEqual([name, answered])
  }
})
