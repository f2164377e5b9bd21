/** What processes know of mail servers, as the dashboard shows it: two probes that ask real servers on the loopback. */
import { ulid } from 'ulid'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { putUser } from '../../src/administration/users.ts'
import { closeBreakers, createClosings } from '../../src/capabilities/email-validation/mailbox/closings.ts'
import { mailServers, startReporting } from '../../src/capabilities/email-validation/mailbox/servers.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { addressOf, ends, only, probeAt, scene } from '../email-validation/mailbox-scene.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
const page = '/operations/mailboxes'

beforeAll(async () => {
  room = await openDashboardHost()
  const user = { name: 'ada', password: 'correct horse battery staple' }
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
})
afterAll(() => room?.close())

/** Reports when it is told to. */
const reporting = (lanes: Parameters<typeof startReporting>[0]['lanes']) => {
  const started = startReporting({ pool: room.foundation.pool, lanes, logger: { warn: vi.fn() } })
  ends.push(started.close)
  return started
}

test('before a server was asked the page says so', async () => {
  expect((await ada.get(page)).body).toContain('No process has asked a mail server lately')
  expect((await ada.get('/operations')).body).toContain(`href="${page}"`)
})

test('servers are shown of every process, without a local part, open breakers first, and found by domain', async () => {
  const { pool } = room.foundation
  const { probe, ask } = await scene({ recipient: only('known', '550 5.1.1 <gone@example.com> is not here') })
  await ask('known')
  await ask('gone')
  // No one listens on port 1.
  const { probe: other } = probeAt(1, { breakerStrikes: 1 })
  const target = { targets: [{ exchange: 'mx.<b>down</b>.example', addresses: ['127.0.0.2'] }] }
  await other.probe(addressOf('secretperson', 'down.example'), target)
  await other.probe(addressOf('secretperson', 'down.example'), target)
  await reporting(() => probe.servers()).report()
  await reporting(() => other.servers()).report()

  const { statusCode, body } = await ada.get(page)
  expect(statusCode).toBe(200)
  expect(body).toContain('mx.example.com')
  expect(body).toContain('mx.&lt;b&gt;down&lt;/b&gt;.example')
  expect(body.indexOf('mx.&lt;b&gt;')).toBeLessThan(body.indexOf('mx.example.com'))
  expect(body).toContain('<span class="mark bad">open</span> until <time')
  expect(body).toContain('opened 1 time')
  expect(body).toContain('turned away 1')
  expect(body).toMatch(/refused [12]/)
  for (const hidden of ['secretperson', 'known@', 'gone@', 'gone', 'is not here'])
    expect(body).not.toContain(hidden)
  const { rows } = await pool.query<{ all: string }>('select report::text as all from mailbox_servers')
  for (const { all } of rows) expect(all).not.toMatch(/secretperson|gone|not here/)

  const found = (await ada.get(`${page}?find=DOWN.example`)).body
  expect(found).toContain('127.0.0.2')
  expect(found).not.toContain('mx.example.com')
  for (const query of ['%00', '%25', "'", 'x'.repeat(300), '%F0%9F%98%80'])
    expect([query, (await ada.get(`${page}?find=${query}`)).statusCode]).toEqual([query, 200])
  expect((await ada.get(`${page}?find=%25down`)).body).toContain('No process knows such a server')
})

test('what a process put down goes with it, or after a minute, and what another release wrote is left out', async () => {
  const { pool } = room.foundation
  await pool.query('delete from mailbox_servers')
  const { probe, ask } = await scene({ recipient: only('known') })
  await ask('known')
  const logger = { warn: vi.fn() }
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  const own = startReporting({ pool, lanes: () => probe.servers(), logger })
  await vi.advanceTimersByTimeAsync(5_000)
  vi.useRealTimers()
  await vi.waitFor(async () => expect(await mailServers(pool, { search: '', max: 10 })).toHaveLength(1))
  expect((await mailServers(pool, { search: '', max: 10 }))[0]).toMatchObject({
    exchange: 'mx.example.com',
    breaker: 'closed',
    domains: ['example.com'],
  })
  await pool.query(
    `insert into mailbox_servers (reporter, address, exchange, domains, host, pid, report, reported_at)
     values ($1, '127.0.0.9', 'old.example', '{}', 'h', 1, '{}', now() - interval '2 min'), ($2, '127.0.0.8', 'new.example', '{}', 'h', 1, '{}', now())`,
    [ulid(), ulid()],
  )
  expect(await mailServers(pool, { search: '', max: 10 })).toHaveLength(1)
  await own.close()
  await reporting(() => probe.servers()).report()
  const { rows } = await pool.query('select exchange from mailbox_servers')
  expect(rows.map(({ exchange }) => exchange).sort()).toEqual(['mx.example.com', 'new.example'])
  expect(logger.warn).not.toHaveBeenCalled()
})

test('of more servers than are put down those in trouble are', async () => {
  const { pool } = room.foundation
  const { probe, ask } = await scene({ recipient: only('known') })
  await ask('known')
  const [one] = probe.servers()
  if (one === undefined) throw new Error('no server was asked')
  const many = Array.from({ length: 1_000 }, (_, i) => ({
    ...{ ...one, address: `10.0.${i >> 8}.${i & 255}`, exchange: `mx${i}.example` },
    breaker: i === 999 ? ('open' as const) : ('closed' as const),
  }))
  await pool.query('delete from mailbox_servers')
  let lanes: readonly (typeof many)[number][] = many
  const own = reporting(() => lanes)
  await own.report()
  const { rows } = await pool.query<{ n: number; open: number }>(
    `select count(*)::int as n, count(*) filter (where report ->> 'breaker' = 'open')::int as open from mailbox_servers`,
  )
  expect(rows).toEqual([{ n: 200, open: 1 }])
  lanes = []
  await own.report()
  expect((await pool.query('select from mailbox_servers')).rowCount).toBe(0)
})

test('a person closes the breaker of a server in every process, and it is recorded once', async () => {
  const { pool, eventLog } = room.foundation
  await pool.query('delete from mailbox_servers')
  const target = { targets: [{ exchange: 'mx.Down.example', addresses: ['127.0.0.2'] }] }
  const processes = await Promise.all(
    ['one', 'two'].map(async () => {
      const { probe } = probeAt(1, { breakerStrikes: 1 })
      const closings = createClosings(pool, (addresses) => probe.closeBreakers(addresses))
      const own = startReporting({
        ...{ pool, lanes: () => probe.servers(), logger: { warn: vi.fn() } },
        before: closings.look,
      })
      ends.push(own.close)
      const fail = () => probe.probe(addressOf('somebody', 'down.example'), target)
      await own.report()
      await fail()
      await fail()
      await own.report()
      return { own, fail, breaker: () => probe.servers()[0]?.breaker }
    }),
  )
  const breakers = () => processes.map(({ breaker }) => breaker())
  expect(breakers()).toEqual(['open', 'open'])
  const button = '<input type="hidden" name="server" value="127.0.0.2">'
  expect((await ada.get(page)).body).toContain(button)

  for (const [server, why] of [
    ['mx.other.example', 'No process knows such a mail server.'],
    ['', 'No process knows such a mail server.'],
    ['\0', 'No process knows such a mail server.'],
  ] as const) {
    const refused = await ada.submit(page, { server }, `${page}/close`)
    expect([refused.statusCode, refused.body]).toEqual([422, expect.stringContaining(why)])
  }
  const closedByHand = async () =>
    (await eventLog.read(operatorStream, { max: 1_000 }).catch(() => []))
      .map(decodeEvent)
      .filter(({ type }) => type === 'MailServerBreakerClosed')
  expect(await closedByHand()).toEqual([])

  const done = await ada.submit(page, { server: 'MX.down.example' }, `${page}/close`)
  expect([done.statusCode, done.headers.location]).toEqual([303, `${page}?closed=mx.down.example`])
  expect((await ada.get(`${page}?closed=mx.down.example`)).body).toContain(
    'Every process closes its breaker of mx.down.example within ten seconds.',
  )
  expect(await closedByHand()).toMatchObject([
    { data: { server: 'mx.Down.example', addresses: ['127.0.0.2'] }, metadata: { actor: 'user:ada' } },
  ])
  for (const { own } of processes) await own.report()
  expect(breakers()).toEqual(['closed', 'closed'])
  expect((await ada.get(page)).body).not.toContain(button)
  const again = closeBreakers(room.foundation, '127.0.0.2', { actor: 'user:ada', once: 'again' })
  await expect(again).rejects.toThrow('closed in every process')
  expect(await closedByHand()).toHaveLength(1)

  // What was asked once does not close a breaker that opens later, nor one of a process that starts then.
  const [first] = processes
  await first?.fail()
  await first?.own.report()
  expect(breakers()).toEqual(['open', 'closed'])
  const late: string[] = []
  const started = createClosings(pool, (addresses) => void late.push(...addresses))
  await started.look()
  await started.look()
  expect(late).toEqual([])
  // A clock that went back: it is told of again, and heeded no second time.
  await pool.query(`update mailbox_closings set asked_at = now() + interval '1 hour'`)
  await first?.own.report()
  expect(breakers()).toEqual(['open', 'closed'])
})
