/** Real processes count refused calls together. When the processes end, no refused call is lost, and none is recorded twice. */
import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../support/postgres.ts'
import {
  createPartner,
  eventually,
  exportLedger,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

const closing: (() => Promise<unknown>)[] = []
afterAll(async () => {
  for (const close of closing.reverse()) await close()
})

test('when two processes end by SIGTERM, each has recorded 60 single refusals, and the rest in one event', async () => {
  const database = await testDatabase()
  closing.push(database.drop)
  const variables = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of at least thirty-two characters',
    ROLES: 'api,dashboard',
  }
  const services: Service[] = await Promise.all([startService(variables), startService(variables)])
  for (const service of services) closing.push(() => service.end('SIGKILL'))
  const partner = await createPartner('5', variables)
  const statuses = await Promise.all(
    services.map(async ({ apiUrl }, n) => {
      await eventually(async () => {
        const { status } = await lookup(apiUrl, partner.apiKey, '10.0.0.1')
        return status === 200 ? true : undefined
      })
      const calls = Array.from({ length: 100 + n }, () => lookup(apiUrl, partner.apiKey, 'nonsense'))
      return (await Promise.all(calls)).map(({ status }) => status)
    }),
  )
  expect(statuses.flat()).toEqual(Array(201).fill(400))
  expect(await Promise.all(services.map((service) => service.end('SIGTERM')))).toEqual([0, 0])
  const events = await exportLedger(partner.organizationId, variables)
  const singly = events.filter(({ type, data }) => type === 'KeyUsed' && data.code === 'IP_001')
  const together = events.flatMap(({ type, data }) => (type === 'CallsRefused' ? [data] : []))
  const counts = together.map((data) => (data.counts as { count: number }[]).map(({ count }) => count))
  // If a new minute has begun, there is one more event, and there are single refusals for the next minute.
  const sum = counts.flat().reduce((total, count) => total + count, singly.length)
  expect(sum).toBe(201)
  expect(singly.length).toBeGreaterThanOrEqual(120)
  expect(events.filter(({ type }) => type === 'CreditCharged')).toEqual([])
})
