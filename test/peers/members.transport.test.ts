/** Members over real connections: TLS on loopback, and the table of a real PostgreSQL. */
import { randomBytes } from 'node:crypto'
import { ulid } from 'ulid'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { openPeers, type Peers } from '../../src/peers/members.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'

const organizations = Array.from({ length: 100 }, () => `org_${ulid()}`)
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined }
const key = randomBytes(32)
const opened: Peers[] = []
let database: TestDatabase

beforeAll(async () => {
  database = await testDatabase()
})
afterEach(async () => {
  await Promise.all(opened.splice(0).map((peers) => peers.close()))
})
afterAll(() => database.drop())

const open = (ROLES: ['api'] | ['jobs'], ownKey = key): Peers => {
  const peers = openPeers({
    url: database.url,
    config: { PEER_HOST: '127.0.0.1', PEER_PORT: 0, ROLES },
    key: ownKey,
    logger: quiet,
    limits: { ownersMin: 1_000, everyMs: 100, hurriedEveryMs: 30, aloneMs: 200, openingMs: 3_000 },
  })
  opened.push(peers)
  return peers
}
const join = async (name: string, ownKey = key): Promise<Peers> => {
  const peers = open(['api'], ownKey)
  await peers.join((question, _from, answer) => answer({ by: name, question }))
  return peers
}
const ownersBy = (peers: Peers): Set<string | null> =>
  new Set(organizations.map((id) => peers.ownerOf(id)?.id ?? null))
const until = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 30_000, interval: 10 })

test('two members find each other by the table, share the organizations, and carry questions', async () => {
  const one = await join('one')
  const other = await join('other')
  await until(() => expect([ownersBy(one).size, ownersBy(other).size]).toEqual([2, 2]))
  for (const id of organizations)
    expect([one.ownerOf(id), other.ownerOf(id)].filter((owner) => owner === null)).toHaveLength(1)
  const theirs = organizations.find((id) => one.ownerOf(id) !== null) ?? ''
  const heard = new Promise((resolve) => expect(one.ownerOf(theirs)?.ask({ n: 1 }, resolve)).toBe(true))
  expect(await heard).toEqual({ by: 'other', question: { n: 1 } })

  const visitor = open(['jobs'])
  await visitor.opening()
  expect(ownersBy(visitor).size).toBe(2)
  expect(ownersBy(visitor)).not.toContain(null)

  await other.leave()
  await until(() => expect(ownersBy(one)).toEqual(new Set([null])))
  await other.close()
  await until(() => expect(one.others()).toBe(false))
})

test('a process with another secret key is no peer, and neither is owner for the other', async () => {
  const one = await join('one')
  const stranger = await join('stranger', randomBytes(32))
  await until(() => expect([one.others(), stranger.others()]).toEqual([true, true]))
  expect([ownersBy(one), ownersBy(stranger)]).toEqual([new Set([null]), new Set([null])])
})
