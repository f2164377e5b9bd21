/** How long an organization's calls took, on its usage page and as CSV, from calls that were answered over HTTP. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { defaultKeyLimits, issueKey } from '../../src/administration/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations.ts'
import { createUser } from '../../src/administration/user-changes.ts'
import { type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'

let room: DashboardHost
const actor = 'cli:setup'

beforeAll(async () => {
  room = await openDashboardHost()
})
afterAll(() => room?.close())

const organization = async (name: string) => {
  const { organizationId } = await createOrganization(room.foundation, { name, overdraftLimit: 0n, actor })
  const { apiKey } = await issueKey(room.foundation, {
    ...{ organizationId, name, permissions: [], limits: { ...defaultKeyLimits, requests_per_minute: 3 } },
    ...{ allowedCidrs: [], expiresAt: null, actor },
  })
  return { organizationId, apiKey }
}

const whoami = async (apiKey: string): Promise<number> =>
  (await room.host.inject({ method: 'GET', url: '/whoami', headers: { 'x-api-key': apiKey } })).statusCode

test('answered calls are there with their percentiles, refused ones and those of others are not', async () => {
  const [ours, theirs] = [await organization('Ours'), await organization('Theirs')]
  await room.caughtUp()
  expect([
    await whoami(ours.apiKey),
    await whoami(ours.apiKey),
    await whoami(ours.apiKey),
    // Over its rate limit, and with a key that is none.
    await whoami(ours.apiKey),
    await whoami(`${ours.apiKey}x`),
    await whoami(theirs.apiKey),
  ]).toEqual([200, 200, 200, 429, 401, 200])
  await room.latencies.close()
  const person = { name: 'nora', role: 'partner', organizationId: ours.organizationId, actor } as const
  await createUser(room.foundation, { name: 'ada', role: 'admin', organizationId: null, actor })
  const { password } = await createUser(room.foundation, person)
  const nora = await signedIn(room, { name: 'nora', password })
  const path = `/organizations/${ours.organizationId}/usage`
  const { body } = await nora.get(path)
  expect(body).toMatch(/<h2 id="latency-whoami">Latency of whoami by day<\/h2>/)
  expect(body).toMatch(/data-head="Capability">whoami<\/th><td class="number" data-head="Calls"><div>3</)
  expect(body).toContain('data-kind="lines"')
  const day = (from: number): string => new Date(Date.now() + from * 86_400_000).toISOString().slice(0, 10)
  for (const [query, times] of [
    ['unit=day', 30],
    [`unit=hour&from=${day(-1)}&to=${day(0)}`, 48],
  ] as const) {
    const { body: csv } = await nora.get(`${path}.csv?table=latency&${query}`)
    const [head, ...lines] = csv.trimEnd().split('\r\n')
    expect(head).toBe('time_utc,capability,calls,p50_ms,p95_ms,p99_ms')
    const rows = lines.map((line) => line.split(','))
    expect(rows.map(([, capability]) => capability)).toEqual(new Array(times).fill('whoami'))
    expect(rows.reduce((sum, [, , calls]) => sum + Number(calls), 0)).toBe(3)
    for (const [, , calls, ...ms] of rows)
      if (calls === '0') expect(ms).toEqual(['', '', ''])
      else {
        expect(Number(ms[0])).toBeGreaterThan(0)
        expect(ms.map(Number).toSorted((x, y) => x - y)).toEqual(ms.map(Number))
      }
  }
  expect((await nora.get(`/organizations/${theirs.organizationId}/usage.csv?table=latency`)).statusCode).toBe(
    404,
  )
})

test('an organization without answered calls is told so', async () => {
  const { organizationId } = await organization('Quiet')
  await room.caughtUp()
  const ben = await createUser(room.foundation, { name: 'ben', role: 'viewer', organizationId: null, actor })
  const { body, statusCode } = await (await signedIn(room, { name: 'ben', password: ben.password })).get(
    `/organizations/${organizationId}/usage`,
  )
  expect(statusCode).toBe(200)
  expect(body).toContain('No call was answered in this time')
})
