/** Decisions 22 and 23 with several processes: limits are exact. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cliJson,
  createPartner,
  eventually,
  exportLedger,
  type Partner,
  type Service,
  startService,
} from '../support/service.ts'

const clients = 64

type Decision = { fire: boolean; reason: string; remaining: number | null }

describe('the pixel controls of two processes on one database', () => {
  const cap = 1_000
  const hits = cap + cap / 10
  let database: TestDatabase
  let environment: Record<string, string>
  let services: Service[] = []
  let partner: Partner

  const startAll = async (): Promise<void> => {
    services = await Promise.all([startService(environment), startService(environment)])
  }
  beforeAll(async () => {
    database = await testDatabase()
    environment = {
      DATABASE_URL: database.url,
      SECRET_KEY: 'a secret of the test, long enough to be one',
      ROLES: 'api',
    }
    await startAll()
    partner = await createPartner('10', environment)
    for (const service of services)
      await eventually(async () => ((await list(service)).status === 200 ? true : undefined))
  })
  afterAll(async () => {
    await Promise.all(services.map((service) => service.end('SIGTERM')))
    await database?.drop()
  })

  const call = (service: Service | undefined, method: string, path: string, body?: object) =>
    fetch(`${service?.apiUrl}${path}`, {
      method,
      headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  const list = (service: Service | undefined) => call(service, 'GET', '/pixel/limit')
  const resultOf = async <Result>(answering: Promise<Response>): Promise<Result> => {
    const answer = await answering
    const text = await answer.text()
    if (answer.status !== 200) throw new Error(`${answer.status} ${text}`)
    return (JSON.parse(text) as { result: Result }).result
  }
  const setLimit = (service: Service | undefined, domain: string, number: number) =>
    resultOf<{ used: number }>(call(service, 'POST', '/pixel/limit', { domain, period: 'month', number }))
  const decide = (service: Service | undefined, url: string, hitId?: string) =>
    resultOf<Decision>(call(service, 'POST', '/pixel/decide', { url, hit_id: hitId }))
  /** On a busy machine a hit may time out. Asking again with its id returns its verdict. */
  const judged = (service: Service | undefined, url: string, hitId: string): Promise<Decision> =>
    eventually(async () => {
      const decision = await decide(service, url, hitId)
      return decision.reason === 'unavailable' ? undefined : decision
    })
  let asks = 0
  /** Sends hits until a rule decides one, which uses up one of the rule's hits. */
  const known = (service: Service | undefined, url: string): Promise<Decision> =>
    eventually(async () => {
      const decision = await judged(service, url, `known-${++asks}`)
      return decision.reason === 'no_rule' ? undefined : decision
    })

  test('a block set through one process applies in the other within moments', async () => {
    const [one, other] = services
    expect(await decide(other, 'https://a.example.net/')).toMatchObject({ fire: true, reason: 'no_rule' })
    await resultOf(call(one, 'POST', '/pixel/block', { domain: 'example.net' }))
    expect(await decide(one, 'https://a.example.net/')).toMatchObject({ fire: false, reason: 'blocked' })
    await known(other, 'https://a.example.net/')
    expect(await decide(other, 'https://a.example.net/')).toMatchObject({ fire: false, reason: 'blocked' })
  })

  test(`${clients} clients on two processes: a limit of ${cap} lets exactly ${cap} fire, and the ledger shows the same`, async () => {
    await setLimit(services[0], 'example.com', cap)
    expect(await known(services[1], 'https://example.com/')).toMatchObject({ fire: true })
    let asked = 1
    let fired = 1
    const reasons = new Set<string>()
    const client = async (n: number): Promise<void> => {
      while (asked < hits) {
        asked++
        const { fire, reason } = await judged(
          services[n % 2],
          `https://c${n}.example.com/${asked}`,
          String(asked),
        )
        if (fire) fired++
        reasons.add(reason)
      }
    }
    await Promise.all(Array.from({ length: clients }, (_, n) => client(n)))
    expect([...reasons].sort()).toEqual(['allowed', 'limit'])
    expect(fired).toBe(cap)
    expect((await setLimit(services[1], 'example.com', cap)).used).toBe(cap)
    const events = await exportLedger(partner.organizationId, environment)
    const fires = events.filter(({ data }) => {
      const { facts } = data as { facts?: { action?: string; domain?: string; fire?: boolean } }
      return facts?.action === 'decided' && facts.domain === 'example.com' && facts.fire === true
    })
    expect(fires).toHaveLength(cap)
    const { balance } = await cliJson<{ balance: string }>(
      ['credits', 'balance', partner.organizationId],
      environment,
    )
    expect(balance).toBe('10')
  })

  test('processes killed under load and started again continue counting: never more than the limit fire', async () => {
    const small = 120
    await setLimit(services[0], 'example.org', small)
    expect(await known(services[1], 'https://example.org/')).toMatchObject({ fire: true })
    expect(await judged(services[0], 'https://example.org/', 'before')).toMatchObject({ fire: true })
    let fired = 2
    let stopped = false
    const client = async (n: number): Promise<void> => {
      while (!stopped) {
        const decision = await decide(services[n % 2], 'https://example.org/').catch(() => null)
        if (decision?.fire === true) fired++
        if (fired > small / 4) stopped = true
      }
    }
    await Promise.all(Array.from({ length: 16 }, (_, n) => client(n)))
    const load = Promise.all(
      Array.from({ length: 16 }, async (_, n) => {
        const decision = await decide(services[n % 2], 'https://example.org/').catch(() => null)
        if (decision?.fire === true) fired++
      }),
    )
    await Promise.all(services.map((service) => service.end('SIGKILL')))
    await load
    await startAll()
    const { used } = await setLimit(services[0], 'example.org', small)
    expect(used).toBeGreaterThanOrEqual(fired)
    expect(await judged(services[1], 'https://example.org/', 'before')).toMatchObject({ reason: 'allowed' })
    let more = 0
    for (let n = 0; n < small - used + 5; n++)
      if ((await judged(services[n % 2], 'https://example.org/', `after-${n}`)).fire) more++
    expect(more).toBe(small - used)
  })
})
