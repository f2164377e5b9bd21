import { copyFile, cp, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, expect, test } from 'vitest'
import { inventedPeople } from '../../src/capabilities/profile/dataset/invented-people.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  lookup,
  type Partner,
  startCli,
  startService,
} from '../support/service.ts'

/**
 * The embedded default is backed up under load and restored into an empty folder, as the guide describes. BACKUP_CALLS sets the
 * number of calls in the log before the backup.
 */

const callsFirst = Number(process.env.BACKUP_CALLS ?? 400)
const callers = 8

const file = (name: string): string => join(dir, name)
const from = (): Record<string, string> => ({ DATA_DIR: file('from') })
const running: (() => Promise<unknown>)[] = []

const dir = await mkdtemp(join(tmpdir(), 'backup-'))
const service = await startService(from())
const partners = [await createPartner('100000', from()), await createPartner('500', from())]
afterAll(async () => {
  for (const end of running.reverse()) await end()
  await service.end('SIGTERM')
  await rm(dir, { recursive: true, force: true })
})

type Called = { readonly key: string; readonly requestId: string }

/** Makes calls, each with its own Idempotency-Key, until it is stopped. */
const startCalling = (most = Number.POSITIVE_INFINITY) => {
  const called: Called[] = []
  const others: unknown[] = []
  let next = 0
  let stopped = false
  const calling = async (): Promise<void> => {
    while (!stopped && next < most) {
      const key = `${most}-call-${next++}`
      const apiKey = partners[0]?.apiKey ?? ''
      const answer = await lookup(service.apiUrl, apiKey, '8.8.8.8', { 'idempotency-key': key }).catch(
        (error: unknown) => ({ status: 0, headers: new Headers(), error }),
      )
      if (answer.status === 200) called.push({ key, requestId: answer.headers.get('x-request-id') ?? '' })
      else others.push(answer)
    }
  }
  const all = Promise.all(Array.from({ length: callers }, calling))
  return {
    called,
    done: () => all,
    stop: async () => {
      stopped = true
      await all
      expect(others).toEqual([])
      return called
    },
  }
}

const profileOf = async (apiUrl: string, id: string) => {
  const response = await fetch(`${apiUrl}/v1/profnet/profile`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': partners[1]?.apiKey ?? '' },
    body: JSON.stringify({ id }),
    signal: AbortSignal.timeout(30_000),
  })
  return response.status
}

const balanceOf = async (partner: Partner | undefined, variables: Record<string, string>): Promise<string> =>
  (await cliJson<{ balance: string }>(['credits', 'balance', partner?.organizationId ?? ''], variables))
    .balance

/**
 * Reads the balances with one command after the other. If no service runs, the first command to end would stop the PostgreSQL
 * that parallel commands use.
 */
const balancesIn = async (variables: Record<string, string>): Promise<string[]> => {
  const balances: string[] = []
  for (const partner of partners) balances.push(await balanceOf(partner, variables))
  return balances
}

type Made = {
  readonly file: string
  readonly sha256: string
  readonly position: string
  readonly bytes: number
  readonly seconds: number
}

const backUp = (name: string): Promise<Made> => cliJson<Made>(['backup', 'create', file(name)], from())

/** Creates a folder with the files that a backup does not contain. */
const folder = async (name: string): Promise<Record<string, string>> => {
  await mkdir(file(name), { mode: 0o700 })
  await copyFile(join(file('from'), 'secret_key'), join(file(name), 'secret_key'))
  await cp(join(file('from'), 'keys'), join(file(name), 'keys'), { recursive: true })
  return { DATA_DIR: file(name) }
}

test('two backups made under load: no call fails', async () => {
  const before = startCalling(callsFirst)
  await before.done()
  const beside = startCalling()
  const whole = await backUp('whole.tar')
  const called = await beside.stop()
  expect(called.length, 'calls continued during the backup').toBeGreaterThan(10)
  expect(await profileOf(service.apiUrl, people[0])).toBe(200)
  expect(await profileOf(service.apiUrl, people[1])).toBe(200)
  const next = await backUp('next.tar')
  expect(BigInt(next.position)).toBeGreaterThan(BigInt(whole.position))
  expect(await cliJson(['backup', 'verify', file('next.tar')], from())).toMatchObject([{ ok: true }])
  process.stderr.write(
    `${whole.position} events: ${(whole.bytes / 1e6).toFixed(1)} MB in ${whole.seconds} s; the next ${(next.bytes / 1e6).toFixed(1)} MB in ${next.seconds} s\n`,
  )
})

const people = [...inventedPeople(20)].filter((person) => !('deleted' in person)).map(({ lid }) => lid) as [
  string,
  string,
]

test('restored into an empty folder: all proofs succeed, rows equal a rebuild, balances are unchanged, keys work', async () => {
  const balances = await balancesIn(from())
  const [known] = await startCallingOnce()
  // The person is erased after the backup. The restored backup contains the person's data again, but the key folder no longer has
  // the key for it.
  expect((await cli(['profiles', 'erase', people[0], '--yes'], from())).code).toBe(0)
  const there = await folder('to')
  const restored = await cliJson<{ ok: boolean; events: number; seconds: number }>(
    ['backup', 'restore', file('next.tar')],
    there,
  )
  expect(restored.ok).toBe(true)
  process.stderr.write(`restored ${restored.events} events in ${restored.seconds} s\n`)
  const second = await startService(there, { withoutDemo: true })
  running.push(() => second.end('SIGTERM'))
  expect(second.output(), 'no demo is seeded').not.toContain('demo_')
  expect(await balancesIn(there)).toEqual(balances)
  for (const proof of [
    ['event-log', 'verify'],
    ['projection', 'verify', '--all'],
    ['ledger', 'reconcile'],
  ])
    expect(await cli(proof, there), proof.join(' ')).toMatchObject({ code: 0 })
  const [partner] = partners
  const again = await lookup(second.apiUrl, partner?.apiKey ?? '', '8.8.8.8', {
    'idempotency-key': `${callsFirst}-call-0`,
  })
  expect(again.status).toBe(200)
  expect(again.headers.get('idempotent-replayed')).toBe('true')
  expect(known).toBeDefined()
  expect((await lookup(second.apiUrl, partner?.apiKey ?? '', '8.8.8.8')).status).toBe(200)
  await eventually(async () => {
    const balance = await balanceOf(partner, there)
    return Number(balance) === Number(balances[0]) - 1 ? true : undefined
  })
  expect(await profileOf(second.apiUrl, people[0]), 'erased after the backup was made').toBe(404)
  expect(await profileOf(second.apiUrl, people[1]), 'not erased').toBe(200)
  const audit = await cli(['event-log', 'show', 'operator'], there)
  expect(audit.out).toContain('BackupRestored')
}, 180_000)

/** Makes one call after the newest backup, so the restored installation has no record of it. */
const startCallingOnce = async (): Promise<readonly Called[]> => {
  const once = startCalling(1)
  await once.done()
  return once.stop()
}

test('a killed backup leaves no file under its final name, and the next backup shows the remedy for the partial file', async () => {
  for (const afterMs of [400, 700, 1_000]) {
    const making = startCli(['backup', 'create', file('killed.tar')], from())
    await sleep(afterMs)
    making.child.kill('SIGKILL')
    await making.ended
    const left = (await readdir(dir)).filter((name) => name.startsWith('killed'))
    if (left.includes('killed.tar')) {
      // The backup finished before it could be killed.
      await rm(file('killed.tar'))
      continue
    }
    if (left.length === 0) continue
    const { err } = await cli(['backup', 'create', file('killed.tar')], from())
    expect(err).toContain(
      'killed.tar.partial exists: another backup is writing it, or was killed and did not remove it',
    )
    await rm(file('killed.tar.partial'))
  }
  expect((await backUp('killed.tar')).bytes).toBeGreaterThan(0)
})
