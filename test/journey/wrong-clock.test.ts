import { afterEach, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cliJson,
  createPartner,
  eventually,
  exportLedger,
  lookup,
  type Service,
  serviceCommand,
  startService,
} from '../support/service.ts'

/** Two api processes. The clock of one of them is a day wrong. */

const dayMs = 86_400_000

let services: Service[] = []
let database: TestDatabase | undefined

afterEach(async () => {
  await Promise.all(services.map((service) => service.end('SIGTERM')))
  await database?.drop()
  services = []
})

/** Runs the service with a clock that is ahead by this much. */
const withClock = (aheadMs: number): [string, ...string[]] => {
  const [node, ...args] = serviceCommand
  const module = `
    const RightDate = Date
    globalThis.Date = class Date extends RightDate {
      constructor(...args) { args.length === 0 ? super(RightDate.now() + ${aheadMs}) : super(...args) }
      static now() { return RightDate.now() + ${aheadMs} }
    }`
  return [node, '--import', `data:text/javascript,${encodeURIComponent(module)}`, ...args]
}

test('a process whose clock is a day ahead of the database refuses all calls, and names the difference', async () => {
  database = await testDatabase()
  const environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    METRICS_PORT: '0',
  }
  const right = await startService({ ...environment, ROLES: 'api,projector' })
  services.push(right)
  const wrong = await startService({ ...environment, ROLES: 'api' }, { command: withClock(dayMs) })
  services.push(wrong)
  const { organizationId, apiKey } = await createPartner('2', environment)
  const inHalfADay = new Date(Date.now() + dayMs / 2).toISOString()
  const expiring = ['--expires-at', inHalfADay, '--priority', '1', '--reason', 'test', '--yes']
  await cliJson(['credits', 'grant', organizationId, '10', ...expiring], environment)
  const key = await cliJson<{ api_key: string }>(
    ['key', 'issue', organizationId, '--expires-at', inHalfADay],
    environment,
  )
  const call = ({ apiUrl }: Service, n: number, usedKey = apiKey) => lookup(apiUrl, usedKey, `8.8.${n}.8`)
  await eventually(async () => ((await call(right, 0)).status === 200 ? true : undefined))

  for (const usedKey of [apiKey, key.api_key, 'no key'])
    for (let n = 0; n < 3; n++) {
      const { status, headers, body } = await call(wrong, n, usedKey)
      expect([status, body.code, headers.get('retry-after')]).toEqual([503, 'SYS_002', '30'])
    }
  expect((await fetch(`${wrong.apiUrl}/readyz`)).status).toBe(503)
  const { checks } = JSON.parse(await (await fetch(`${wrong.metricsUrl}/readyz`)).text())
  expect(checks.clock).toEqual({
    status: 'failed',
    found: [expect.stringMatching(/this host's clock is 86\d{3} s ahead of the database's/)],
  })
  expect(wrong.output()).toContain('this process refuses calls until they agree')

  // The other process is not affected.
  expect((await fetch(`${right.apiUrl}/readyz`)).status).toBe(200)
  for (let n = 1; n < 4; n++) {
    const { status, headers } = await call(right, n)
    expect([status, headers.get('credits-remaining')]).toEqual([200, String(11 - n)])
  }
  const nowMs = Date.now()
  for (const { metadata } of await exportLedger(organizationId, environment))
    for (const at of [metadata.effective_at, metadata.recorded_at])
      expect(Math.abs(Date.parse(String(at)) - nowMs)).toBeLessThan(dayMs / 24)
}, 200_000)
