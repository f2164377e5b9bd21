/** A process gets more calls than it can handle. The tests check which calls are accepted, which are refused, and the state afterwards. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { CapabilityForm } from '../../src/call/form.ts'
import { createOverload } from '../../src/call/overload.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { type DashboardHost, openDashboardHost } from '../dashboard/dashboard-host.ts'
import { someDocument } from '../support/call-document.ts'
import { openPartner, unlimited } from '../support/partners.ts'

const bounds = { inProgressMost: 100, inProgressLeast: 10, loopDelayMaxMs: 150, recordingMaxMs: 500 }

describe('the limit on calls in progress', () => {
  const entered = (overload: ReturnType<typeof createOverload>, calls: number): (() => void)[] =>
    Array.from({ length: calls }, () => overload.enter('org')).filter((leave) => leave !== null)

  test('falls to two thirds of the calls in progress while the event loop is late, and never below its minimum', () => {
    let delayMs = 0
    const overload = createOverload(() => delayMs, { bounds })
    entered(overload, 60)
    delayMs = 151
    overload.look()
    expect(overload.inProgressMax).toBe(40)
    for (let look = 0; look < 10; look++) overload.look()
    expect(overload.inProgressMax).toBe(10)
    delayMs = 150
    for (let look = 0; look < 20; look++) overload.look()
    expect(overload.inProgressMax).toBe(100)
  })

  test('falls if every append in a check was slow, but not because of a single slow append', async () => {
    let nowMs = 0
    const overload = createOverload(() => 0, { bounds, now: () => nowMs })
    entered(overload, 90)
    const recorded = async (...durationsMs: number[]): Promise<void> => {
      for (const ms of durationsMs) {
        const work = overload.recording(Promise.resolve())
        nowMs += ms
        await work
      }
    }
    await recorded(5_000)
    overload.look()
    expect(overload.inProgressMax).toBe(100)
    await recorded(600, 700, 5_000, 501)
    overload.look()
    expect(overload.inProgressMax).toBe(60)
    await recorded(600, 700, 5_000, 20)
    overload.look()
    expect(overload.inProgressMax).toBe(75)
  })

  test('counts refused calls by key', () => {
    const overload = createOverload(() => 0, { bounds: { ...bounds, inProgressMost: 4 } })
    expect(entered(overload, 9)).toHaveLength(4)
    expect([overload.inProgress, overload.refused]).toEqual([4, 5])
  })
})

describe('calls beyond the limit', () => {
  let dashboard: DashboardHost
  const waiting: (() => void)[] = []
  /** Calls last until the test releases them. Their facts and price are whoami's. */
  const slow: CapabilityForm<null, null, object> = {
    capability: 'whoami',
    permission: null,
    method: 'POST',
    path: '/v1/slow',
    document: someDocument,
    parse: () => ({ input: null }),
    rehearse: 'own',
    gather: () => new Promise((resolve) => waiting.push(() => resolve(null))),
    decide: () => ({ result: {}, facts: { kind: 'whoami' } }),
  }

  beforeAll(async () => {
    const overload = createOverload(() => 0, { bounds: { ...bounds, inProgressMost: 4 } })
    dashboard = await openDashboardHost({ forms: [slow as never], overload })
  })
  afterAll(() => dashboard?.close())

  const organization = () =>
    openPartner(dashboard.foundation, { credits: '0', permissions: [], limits: unlimited })
  const call = (apiKey: string) =>
    dashboard.host.inject({
      method: 'POST',
      url: '/v1/slow',
      headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
      payload: '{}',
    })
  const ledgerOf = async (organizationId: string): Promise<string[]> =>
    (await dashboard.foundation.eventLog.read(ledgerStream(organizationId), { max: 100 })).map(
      ({ type }) => type,
    )

  test('are refused with 503 immediately, but only for the flooding caller; refused calls cost nothing', async () => {
    const [flood, quiet] = [await organization(), await organization()]
    const first4 = Array.from({ length: 4 }, () => call(flood.apiKey))
    await vi.waitUntil(() => waiting.length === 4, 30_000)
    const refused = await Promise.all([call(flood.apiKey), call(flood.apiKey)])
    for (const { statusCode, headers, json } of refused) {
      expect(statusCode).toBe(503)
      expect(headers).toMatchObject({ 'retry-after': '1', 'ratelimit-policy': expect.any(String) })
      expect(json()).toMatchObject({ error: 'service_unavailable', code: 'SYS_002' })
    }
    const other = call(quiet.apiKey)
    await vi.waitUntil(() => waiting.length === 5, 30_000)
    for (const release of waiting.splice(0)) release()
    expect((await other).statusCode).toBe(200)
    expect((await Promise.all(first4)).map(({ statusCode }) => statusCode)).toEqual([200, 200, 200, 200])

    const again = call(flood.apiKey)
    await vi.waitUntil(() => waiting.length === 1, 30_000)
    waiting.pop()?.()
    expect((await again).statusCode).toBe(200)
    expect(
      (await ledgerOf(flood.organizationId)).filter((type) => type !== 'OrganizationRegistered'),
    ).toEqual(Array.from({ length: 5 }, () => 'KeyUsed'))
  })
})
