/** Who lives and who owns what, on a real PostgreSQL, with connections that the test makes and breaks. */
import pg from 'pg'
import { ulid } from 'ulid'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { openPeers, type Peers, type PeersOptions } from '../../src/peers/members.ts'
import type { PeersLimits } from '../../src/peers/party.ts'
import { createPeerNetwork, type PeerNetwork } from '../support/peer-network.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'

const key = new Uint8Array(32)
const organizations = Array.from({ length: 300 }, () => `org_${ulid()}`)
const quick: Partial<PeersLimits> = {
  // All of them write, whatever there is to write.
  ownersMin: 1_000,
  ...{ everyMs: 40, gapMs: 5, hurriedEveryMs: 20, hurryMs: 200, aloneMs: 150, absentMs: 150 },
  ...{ attemptMs: 60, openingMs: 3_000, lookMs: 20, staleMs: 100, unreachedMs: 150 },
}

let database: TestDatabase
let sql: pg.Pool
let network: PeerNetwork
const opened: Peers[] = []
let logged: { level: string; message: string; fields: object }[] = []
const logger = Object.fromEntries(
  ['info', 'warn', 'error'].map((level) => [
    level,
    (fields: object, message: string) => void logged.push({ level, message, fields }),
  ]),
) as PeersOptions['logger']

beforeAll(async () => {
  database = await testDatabase()
  sql = new pg.Pool({ connectionString: database.url, max: 4 })
  // Dropping the database may end a connection that is closing.
  sql.on('error', () => undefined)
})
afterAll(async () => {
  await sql.end()
  await database.drop()
})
beforeEach(async () => {
  network = createPeerNetwork()
  logged = []
  await sql.query('delete from processes')
})
const closeAll = async (): Promise<void> => {
  await Promise.all(opened.splice(0).map((peers) => peers.close()))
}
afterEach(closeAll)

type Opened = Peers & { readonly id: string }
const open = (options: Partial<PeersOptions> = {}): Opened => {
  const id = options.id ?? ulid()
  const peers = openPeers({
    url: database.url,
    config: { PEER_HOST: '127.0.0.1', PEER_PORT: 0, ROLES: ['api'] },
    ...{ id, key, logger, transport: network.transport },
    ...options,
    limits: { ...quick, ...options.limits },
  })
  opened.push(peers)
  return { ...peers, id }
}
const join = async (options: Partial<PeersOptions> = {}): Promise<Opened> => {
  const member = open(options)
  await member.join((_question, _from, answer) => answer({ by: member.id }))
  return member
}
const joinAll = async (count: number): Promise<Opened[]> => {
  const members: Opened[] = []
  for (let i = 0; i < count; i++) members.push(await join())
  return members
}
const ownersBy = ({ id, ownerOf }: Opened): string[] => organizations.map((one) => ownerOf(one)?.id ?? id)
const until = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 30_000, interval: 5 })
/** All of them see the same owners, and these are exactly those named. */
const agreed = (members: readonly Opened[], owners: readonly Opened[] = members): Promise<void> =>
  until(() => {
    const [first = [], ...rest] = members.map(ownersBy)
    expect([...new Set(first)].sort()).toEqual(owners.map(({ id }) => id).sort())
    for (const one of rest) expect(one).toEqual(first)
  })
const rows = async (): Promise<string[]> =>
  (await sql.query<{ process_id: string }>('select process_id from processes')).rows.map(
    (row) => row.process_id,
  )
const insertDead = (count: number, heartbeat = 'now()'): Promise<unknown> =>
  sql.query(
    `insert into processes (process_id, address, roles, counters, host, pid, heartbeat_at)
     select lpad(n::text, 26, '0'), '192.0.2.1:' || 1000 + n, '{api}', 'redis', 'elsewhere', n, ${heartbeat} from generate_series(1, $1::int) n`,
    [count],
  )

test('a process alone owns everything, listens nowhere and dials no one', async () => {
  const one = await join()
  expect(new Set(ownersBy(one))).toEqual(new Set([one.id]))
  expect(one.others()).toBe(false)
  expect(one.opening()).toBeNull()
  expect([network.listening(), network.dialled]).toEqual([[], []])
  expect(logged).toEqual([])
  expect(one.processes()).toMatchObject([{ id: one.id, own: true, address: null, roles: ['api'] }])
})

test('members agree on who owns what, each its share; one that leaves gives only its own', async () => {
  const members = await joinAll(4)
  await agreed(members)
  const before = ownersBy(members[0] as Opened)
  const [leaver, ...staying] = members as [Opened, ...Opened[]]
  await leaver.leave()
  expect(await rows()).not.toContain(leaver.id)
  await agreed(members, staying)
  const after = ownersBy(staying[0] as Opened)
  expect(before.filter((owner, i) => owner !== leaver.id && owner !== after[i])).toEqual([])
})

test('a question goes to the owner, and its answer comes back', async () => {
  const [one, other] = (await joinAll(2)) as [Opened, Opened]
  await agreed([one, other])
  const theirs = organizations.find((id) => one.ownerOf(id) !== null) ?? ''
  const heard = await new Promise((resolve) => one.ownerOf(theirs)?.ask({ command: 1 }, resolve))
  expect(heard).toEqual({ by: other.id })
})

test('a process that leaves sends to the others until it ends', async () => {
  const [one, other] = (await joinAll(2)) as [Opened, Opened]
  await agreed([one, other])
  await one.leave()
  await one.leave()
  expect(new Set(ownersBy(one))).toEqual(new Set([other.id]))
  await one.close()
  expect(new Set(ownersBy(one))).toEqual(new Set([one.id]))
})

test('alone again, a process stops listening', async () => {
  const [one, other] = (await joinAll(2)) as [Opened, Opened]
  await until(() => expect(network.listening()).toEqual([one.id, other.id].sort()))
  await other.close()
  await until(() => expect(network.listening()).toEqual([]))
  await agreed([one])
  await until(() => expect(one.others()).toBe(false))
})

test('the row of a killed process ends by the clock of the database, and its connection at once', async () => {
  const [one, other] = (await joinAll(2)) as [Opened, Opened]
  await agreed([one, other])
  const killed = ulid()
  await sql.query(
    `insert into processes (process_id, address, roles, counters, host, pid, heartbeat_at) values ($1, '192.0.2.9:1', '{api}', 'redis', 'x', 1, now() - interval '4.8 s')`,
    [killed],
  )
  await until(() => expect(one.processes().map(({ id }) => id)).toContain(killed))
  await agreed([one, other])
  await until(() => expect(one.processes().map(({ id }) => id)).not.toContain(killed))
  network.kill(other.id)
  expect(new Set(ownersBy(one))).toEqual(new Set([one.id]))
})

test('the table emptied under them: they fill it again, and go on meanwhile', async () => {
  const members = await joinAll(3)
  await agreed(members)
  const before = ownersBy(members[0] as Opened)
  await sql.query('delete from processes')
  expect(ownersBy(members[0] as Opened)).toEqual(before)
  await expect.poll(async () => (await rows()).sort()).toEqual(members.map(({ id }) => id).sort())
  expect(members.map(ownersBy)).toEqual([before, before, before])
})

test('a thousand dead addresses: a bounded number is dialled, and no one of them owns anything', async () => {
  const members = await joinAll(2)
  await agreed(members)
  await insertDead(1_000)
  await until(() => expect(network.dialled.some((at) => at.startsWith('192.0.2.'))).toBe(true))
  for (let i = 0; i < 20; i++) {
    // The other one, and what it tries at a time.
    expect(network.links()).toBeLessThanOrEqual(2 * (1 + 16))
    await agreed(members)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  const joining = await join()
  await agreed([...members, joining])
})

test('dead rows are deleted after ten minutes, a hundred at once, those of the future too', async () => {
  await insertDead(150, `now() - interval '11 minutes'`)
  await sql.query(
    `insert into processes (process_id, roles, counters, host, pid, heartbeat_at) values ('FUTURE00000000000000000000', '{api}', 'redis', 'x', 1, now() + interval '1 day')`,
  )
  const one = await join()
  await expect.poll(rows).toEqual([one.id])
})

test('the clock of a machine is never asked: an hour more or less changes nothing', async () => {
  const now = Date.now
  const ahead = vi.spyOn(Date, 'now').mockImplementation(() => now() + 3_600_000)
  try {
    await agreed(await joinAll(2))
  } finally {
    ahead.mockRestore()
  }
})

test('PostgreSQL away: the processes that are connected stay, one that ends is noticed, and all is well after it', async () => {
  const { hostname, port } = new URL(database.url)
  const proxy = await startTcpProxy({ host: hostname, port: Number(port) })
  const url = new URL(database.url)
  url.port = String(proxy.port)
  url.hostname = '127.0.0.1'
  const limits = { statementMs: 600 }
  const members = [
    await join({ url: url.href, limits }),
    await join({ url: url.href, limits }),
    await join({ url: url.href, limits }),
  ]
  await agreed(members)
  const before = ownersBy(members[0] as Opened)
  proxy.freeze()
  await until(() =>
    expect(logged.some(({ message }) => message.includes('table of processes fails'))).toBe(true),
  )
  // Longer than a missing row would count.
  await new Promise((resolve) => setTimeout(resolve, 400))
  expect(members.map(ownersBy)).toEqual([before, before, before])
  const [killed, ...staying] = members as [Opened, ...Opened[]]
  network.kill(killed.id)
  await agreed(staying)
  proxy.thaw()
  await until(() =>
    expect(logged.some(({ message }) => message.includes('table of processes works again'))).toBe(true),
  )
  await agreed(staying)
  // A statement that was given up on may still arrive.
  await closeAll()
  await proxy.close()
})

test('two processes with one id: the second owns nothing, says so, and leaves the row of the first', async () => {
  const id = ulid()
  const first = await join({ id, host: 'one' })
  const second = await join({ id, host: 'other' })
  expect(logged.filter(({ level }) => level === 'error').map(({ message }) => message)).toEqual([
    'peers: another process has the same id, so this one owns nothing',
  ])
  await second.close()
  expect(await rows()).toEqual([id])
  expect(network.dialled).toEqual([])
  await agreed([first])
})

test('processes without the role api are not dialled', async () => {
  const id = ulid()
  await sql.query(
    `insert into processes (process_id, address, roles, counters, host, pid) values ($1, '192.0.2.1:1', '{jobs}', 'redis', 'x', 1)`,
    [id],
  )
  const one = await join()
  expect(one.processes().map((known) => known.id)).toContain(id)
  expect([network.dialled, network.listening()]).toEqual([[], []])
})

test('a process whose row is gone counts a while longer, and no longer: it may be frozen', async () => {
  const slow = { everyMs: 60_000, hurriedEveryMs: 60_000 }
  const one = await join({ limits: { absentMs: 400 } })
  const other = await join({ limits: slow })
  await agreed([one, other])
  await sql.query('delete from processes where process_id = $1', [other.id])
  await until(() => expect(one.processes().map(({ id }) => id)).not.toContain(other.id))
  expect(ownersBy(one)).toContain(other.id)
  await until(() => expect(new Set(ownersBy(one))).toEqual(new Set([one.id])))
})

test('a visitor sends to the owners, owns nothing and has no row', async () => {
  const members = await joinAll(2)
  await agreed(members)
  const visitor = open()
  expect(visitor.others()).toBe(false)
  await visitor.opening()
  expect(ownersBy(visitor)).toEqual(ownersBy(members[0] as Opened))
  expect(visitor.others()).toBe(true)
  expect(visitor.opening()).toBeNull()
  expect((await rows()).sort()).toEqual(members.map(({ id }) => id).sort())
})

test('a visitor where one process lives, or none, writes itself', async () => {
  const visitor = open({ limits: { attemptMs: 3_000 } })
  await visitor.opening()
  expect(visitor.ownerOf('org_1')).toBeNull()
  await join()
  const another = open()
  await another.opening()
  expect([another.ownerOf('org_1'), another.others()]).toEqual([null, false])
})

test('a visitor waits a bounded time for addresses that do not answer, and for a database that is away', async () => {
  await insertDead(3)
  const visitor = open({ limits: { attemptMs: 10_000, openingMs: 50 } })
  const begun = performance.now()
  await visitor.opening()
  const away = open({ url: 'postgres://nobody@127.0.0.1:1/none', limits: { openingMs: 50 } })
  await away.opening()
  expect(performance.now() - begun).toBeLessThan(1_000)
  expect([visitor.ownerOf('org_1'), away.ownerOf('org_1')]).toEqual([null, null])
})

test('a visitor that is used sees who comes, and looks no oftener than it should', async () => {
  const members = await joinAll(2)
  await agreed(members)
  const visitor = open({ limits: { attemptMs: 3_000 } })
  await visitor.opening()
  const third = await join()
  await until(() => {
    void visitor.opening()
    expect(new Set(ownersBy(visitor))).toEqual(new Set([...members, third].map(({ id }) => id)))
  })
  // Not used for long: it waits for its next look.
  await new Promise((resolve) => setTimeout(resolve, 120))
  expect(visitor.opening()).toBeInstanceOf(Promise)
  expect(visitor.opening()).toBeInstanceOf(Promise)
})

test('one that answers too late is passed by for a while, longer each time, and told of once each time', async () => {
  const [one, other] = (await joinAll(2)) as [Opened, Opened]
  await agreed([one, other])
  const limits = { passByMs: 60, passByMsMax: 100 }
  const third = await join({ limits })
  await agreed([one, other, third])
  logged = []
  const passes = (): unknown[] =>
    logged.filter(({ message }) => message.includes('passed by')).map(({ fields }) => fields)
  third.passBy(other.id, 'silent')
  third.passBy(other.id, 'silent')
  third.passBy(ulid(), 'silent')
  expect(new Set(ownersBy(third))).toEqual(new Set([one.id, third.id]))
  expect(third.processes().find(({ id }) => id === other.id)).toMatchObject({
    connected: true,
    passedBy: true,
  })
  await agreed([one, other, third])
  third.passBy(other.id, 'silent')
  await agreed([one, other, third])
  third.passBy(other.id, 'silent')
  expect(passes()).toEqual([0.06, 0.1, 0.1].map((seconds) => ({ process: other.id, seconds })))
})

test('a process that no one reaches, though it reaches others, owns nothing', async () => {
  const [one, other] = (await joinAll(2)) as [Opened, Opened]
  await agreed([one, other])
  network.shutOff(one.id)
  await agreed([one, other], [other])
  await until(() =>
    expect(logged.some(({ message }) => message.startsWith('peers: being reached at PEER_HOST'))).toBe(true),
  )
})

test('a loopback address of another machine is not dialled, and told of', async () => {
  const one = await join()
  await sql.query(
    `insert into processes (process_id, address, roles, counters, host, pid) values ($1, '127.0.0.1:19', '{api}', 'redis', 'another-machine', 1)`,
    [ulid()],
  )
  await until(() =>
    expect(logged.some(({ message }) => message.startsWith('peers: reaching a process fails'))).toBe(true),
  )
  expect(network.dialled).toEqual([])
  expect(new Set(ownersBy(one))).toEqual(new Set([one.id]))
})

test('addresses that are none are not dialled', async () => {
  const one = await join()
  for (const address of [
    '',
    'nowhere',
    '[::1',
    'a b:1',
    '127.0.0.1:0',
    '127.0.0.1:65536',
    '[127.0.0.1]:1',
    'http://x:1',
  ])
    await sql.query(
      `insert into processes (process_id, address, roles, counters, host, pid) values ($1, $2, '{api}', 'redis', $3, 1)`,
      [ulid(), address, 'x'],
    )
  await until(() => expect(one.processes()).toHaveLength(9))
  expect(network.dialled).toEqual([])
})

test('a port that is taken stops the start where others live, and names its variable', async () => {
  const config = { PEER_HOST: '127.0.0.1', PEER_PORT: 7_000, ROLES: ['api' as const] }
  await joinAll(2)
  await join({ config })
  await expect(join({ config })).rejects.toThrow(/^PEER_PORT: port 7000 on 127\.0\.0\.1 is taken/)
})

test('a port that is taken when others come is an error in the log, and the process owns nothing', async () => {
  const config = { PEER_HOST: '127.0.0.1', PEER_PORT: 7_000, ROLES: ['api' as const] }
  const first = await join({ config })
  const second = await join({ config })
  await until(() => expect(logged.filter(({ level }) => level === 'error')).toHaveLength(1))
  await agreed([first, second], [second])
})

test('a process that joins owns nothing before another reaches it', async () => {
  const members = await joinAll(2)
  await agreed(members)
  const id = ulid()
  network.shutOff(id)
  const joining = await join({ id })
  expect(ownersBy(joining)).toEqual(ownersBy(members[0] as Opened))
  expect(await rows()).toContain(id)
})

test('what it says when processes come and go', async () => {
  // A busy machine may take longer for a statement than the others have.
  const limits = { attemptMs: 10_000, absentMs: 10_000, staleMs: 10_000, unreachedMs: 10_000 }
  const one = await join({ limits })
  const other = await join({ limits })
  await agreed([one, other])
  await other.close()
  await agreed([one])
  expect(logged.filter(({ level }) => level !== 'info')).toEqual([])
  const told = logged.map(({ message }) => message)
  expect(told).toContain('peers: now 2 processes share the ledgers')
  expect(told.at(-1)).toBe('peers: now 1 process shares the ledgers')
})
