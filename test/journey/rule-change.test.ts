import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  exportLedger,
  lookup,
  type Partner,
  type Service,
  startCli,
  startService,
} from '../support/service.ts'
import { type Receipt, verifyReceipt } from '../support/verify-receipt.ts'

/**
 * A price changes, and past calls are re-rated, over HTTP and the command line. The processes are real, and one of them is
 * killed. Every figure is computed a second time here, from the output of `ledger export` and without the service's own code.
 */

type Environment = Record<string, string>

let database: TestDatabase
let pool: pg.Pool
let service: Service
let dir = ''
let environment: Environment
let ann: Environment
let bob: Environment
let partners: Partner[]
let run = ''
let trustedKey = ''
let receiptBefore: Receipt
let planFile = ''
let inForceFrom = ''
const range = { from: '', to: '' }
const requests = new Map<string, string[]>()

const located = '8.8.8.8'
const notLocated = '10.0.0.1'
const newPrice = '0.4'

const call = async ({ organizationId, apiKey }: Partner, ip: string): Promise<string | null> => {
  const { status, headers } = await lookup(service.apiUrl, apiKey, ip)
  expect(status).toBe(200)
  const made = requests.get(organizationId) ?? []
  requests.set(organizationId, [...made, headers.get('x-request-id') ?? ''])
  return headers.get('credits-charged')
}

const tokenOf = async (name: string): Promise<Environment> => {
  await cliJson(['user', 'create', name, '--role', 'finance'], environment)
  const { token } = await cliJson<{ token: string }>(['user', 'token', name], environment)
  return { ...environment, OPERATOR_TOKEN: token }
}

const passed = async (instant: string): Promise<void> => {
  await eventually(async () => (Date.now() > Date.parse(instant) ? true : undefined), 60_000)
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'rule-change-'))
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 2 })
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
  service = await startService(environment)
  const made = await Promise.all([
    createPartner('100', environment),
    createPartner('100', environment),
    tokenOf('ann'),
    tokenOf('bob'),
  ])
  // Ledgers are planned and adjusted in the order of their organizations' ids.
  partners = [made[0], made[1]].sort((a, b) => (a.organizationId < b.organizationId ? -1 : 1))
  ;[, , ann, bob] = made
})

afterAll(async () => {
  await service?.end('SIGTERM')
  await pool?.end()
  await database?.drop()
  await rm(dir, { recursive: true, force: true })
})

/** Credits as whole millionths, in this file's own arithmetic. */
const millionths = (credits: string): number => Math.round(Number(credits) * 1_000_000)
const credits = (amount: number): string => String(amount / 1_000_000)

type Recomputed = {
  readonly costs: Map<string, number>
  readonly difference: number
  readonly balance: number
}

/** The original cost of each call in a ledger, its cost at the new price, and the balance. */
const recomputed = async (organizationId: string): Promise<Recomputed> => {
  const events = await exportLedger(organizationId, environment)
  const costs = new Map<string, number>()
  let balance = 0
  let difference = 0
  for (const { type, data, metadata } of events) {
    const amount = millionths(String(data.amount ?? '0'))
    if (type === 'CreditGranted' || type === 'CreditAdjusted') balance += amount
    if (type === 'KeyUsed') costs.set(metadata.request_id ?? '', 0)
    if (type !== 'CreditCharged') continue
    balance -= amount
    const at = String(metadata.effective_at)
    const priced = at >= range.from && at < range.to ? millionths(newPrice) : amount
    difference += priced - amount
    costs.set(metadata.request_id ?? '', priced)
  }
  return { costs, difference, balance }
}

const balanceOf = async (apiKey: string): Promise<string> => {
  const response = await fetch(`${service.apiUrl}/v1/balance`, { headers: { 'x-api-key': apiKey } })
  const { result } = (await response.json()) as { result: { balance: string } }
  return result.balance
}

type Explained = { cost: { charged: string; now: string }; adjustments: { rerate_run: string | null }[] }

const explained = async ({ apiKey }: Partner, request: string): Promise<Explained> => {
  const response = await fetch(`${service.apiUrl}/v1/calls/${request}`, { headers: { 'x-api-key': apiKey } })
  return ((await response.json()) as { result: Explained }).result
}

/** Statements for the month in which the test began, and for the next month if that has begun in the meantime. */
const statementOf = async (organizationId: string): Promise<Record<string, unknown>[]> => {
  const months = new Set([range.from, new Date().toISOString()].map((at) => at.slice(0, 7)))
  const lines: Record<string, unknown>[] = []
  for (const month of months) {
    const { code, out, err } = await cli(
      ['ledger', 'statement', organizationId, month, '--jsonl'],
      environment,
    )
    if (code !== 0) throw new Error(err)
    for (const line of out.trim().split('\n'))
      if (line !== '') lines.push(JSON.parse(line) as Record<string, unknown>)
  }
  return lines
}

/** Gets the receipt for a partner's call, and verifies it with the script for partners and the key that the partner trusted first. */
const provedReceipt = async ({ apiKey }: Partner, request: string): Promise<Receipt> => {
  await cliJson(['event-log', 'checkpoint'], environment)
  const response = await fetch(`${service.apiUrl}/v1/calls/${request}/receipt`, {
    headers: { 'x-api-key': apiKey },
  })
  expect(response.status).toBe(200)
  const { result } = (await response.json()) as { result: Receipt }
  trustedKey ||= result.verifier_key
  verifyReceipt(result, trustedKey)
  return result
}

describe('a price changes, and past calls are re-rated', () => {
  test('calls are made and charged', async () => {
    range.from = new Date(Date.now() - 1_000).toISOString()
    const [one, two] = partners
    if (one === undefined || two === undefined) throw new Error('two partners are there')
    expect([await call(one, located), await call(one, notLocated), await call(one, located)]).toEqual([
      '1',
      '0',
      '1',
    ])
    expect(await call(two, located)).toBe('1')
    range.to = new Date(Date.now() + 1).toISOString()
    receiptBefore = await provedReceipt(one, requests.get(one.organizationId)?.[0] ?? '')
    expect(receiptBefore.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('a new book is proposed, compared, and approved by a second person', async () => {
    const file = join(dir, 'prices.json')
    await writeFile(file, JSON.stringify([{ rule: 'ip_lookup.located', amount: newPrice }]))
    // The approval must be at least 5 s before the book takes effect, and three commands run before it.
    inForceFrom = new Date(Date.now() + 18_000).toISOString()
    const { proposal } = await cliJson<{ proposal: number }>(
      ['price', 'propose', file, '--from', inForceFrom],
      ann,
    )
    const alone = await cli(['price', 'approve', `p${proposal}`, '--yes'], ann)
    expect([alone.code, alone.err]).toEqual([1, expect.stringContaining('another person')])
    await cliJson(['price', 'approve', `p${proposal}`, '--yes'], bob)
  })

  test('the range is planned, and the plan matches this test’s own figures', async () => {
    planFile = join(dir, 'plan.json')
    const planned = await cliJson<{
      run: string
      plan: { given: string; taken: string }
      ledgers: { organization_id: string; calls: number; given: string }[]
    }>(
      ['rerate', 'plan', '2', range.from, range.to, '--reason', 'the price agreed on', '--out', planFile],
      ann,
    )
    run = planned.run
    let all = 0
    for (const [i, { organizationId }] of partners.entries()) {
      const { difference } = await recomputed(organizationId)
      all += difference
      expect(planned.ledgers[i]).toMatchObject({
        organization_id: organizationId,
        given: credits(-difference),
      })
    }
    expect(planned.plan).toMatchObject({ given: credits(-all), taken: '0' })
  })

  test('a changed plan is reported, and the person who planned it cannot approve it', async () => {
    const changed = join(dir, 'changed.json')
    await writeFile(changed, (await readFile(planFile, 'utf8')).replace('"given": "1.2"', '"given": "12"'))
    const refused = await Promise.all([
      cli(['rerate', 'approve', run, '--plan', changed, '--yes'], bob),
      cli(['rerate', 'approve', run, '--yes'], ann),
      cli(['rerate', 'apply', run, '--yes'], bob),
    ])
    expect(refused.map(({ code, err }) => [code, err])).toEqual([
      [1, expect.stringContaining(`is not the plan of ${run}`)],
      [1, expect.stringContaining('another person')],
      [1, expect.stringContaining('is not approved')],
    ])
    await cliJson(['rerate', 'approve', run, '--plan', planFile, '--yes'], bob)
  })

  test('applying the plan is killed between two ledgers, and resumes from there', async () => {
    const [one, two] = partners.map(({ organizationId }) => organizationId)
    const before = await recomputed(two ?? '')
    const client = await pool.connect()
    try {
      await client.query('begin')
      await client.query('select 1 from log_streams where name = $1 for update', [`ledger-${two}`])
      const applying = startCli(['rerate', 'apply', run, '--yes', '--here'], bob)
      await eventually(async () => {
        const { rows } = await pool.query(
          "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%append_batch%'",
        )
        return rows[0]
      })
      // No process repeats the append, but the delayed append can still arrive.
      applying.child.kill('SIGKILL')
      await applying.ended
    } finally {
      await client.query('rollback')
      client.release()
    }
    const first = await exportLedger(one ?? '', environment)
    expect(first.filter(({ type }) => type === 'CreditAdjusted')).toHaveLength(1)
    const applied = await cliJson<{ state: string; applied: { applied: number; amount: string } }>(
      ['rerate', 'apply', run, '--plan', planFile, '--yes'],
      bob,
    )
    expect(applied).toMatchObject({
      state: 'applied',
      applied: { applied: 2, left_out: 0, uncollected: '0' },
    })
    const after = await recomputed(two ?? '')
    expect(after.balance - before.balance).toBe(-before.difference)
    const again = await cli(['rerate', 'apply', run, '--yes'], bob)
    expect([again.code, again.err]).toEqual([1, expect.stringContaining('never applied twice')])
    for (const id of [one, two]) {
      const events = await exportLedger(id ?? '', environment)
      expect(events.filter(({ type }) => type === 'CreditAdjusted')).toHaveLength(1)
    }
  })

  test('from its start time on, the new book prices calls', async () => {
    await passed(inForceFrom)
    const [one] = partners
    if (one === undefined) throw new Error('a partner is there')
    await eventually(async () => ((await call(one, located)) === newPrice ? true : undefined))
  })

  test('balance, calls and statement match this test’s own figures', async () => {
    for (const partner of partners) {
      const { costs, balance } = await recomputed(partner.organizationId)
      expect(await balanceOf(partner.apiKey)).toBe(credits(balance))
      for (const request of requests.get(partner.organizationId) ?? []) {
        const { cost, adjustments } = await explained(partner, request)
        expect(millionths(cost.now)).toBe(costs.get(request))
        expect(adjustments.map(({ rerate_run }) => rerate_run)).toEqual(
          cost.now === cost.charged ? [] : [run],
        )
      }
      const lines = await statementOf(partner.organizationId)
      const moved = lines.reduce((sum, { amount }) => sum + millionths(String(amount ?? '0')), 0)
      expect(moved).toBe(balance)
      expect(lines.filter(({ rerate_run }) => rerate_run === run)).toHaveLength(1)
    }
  })

  test('a call’s receipt is unchanged, because nothing was rewritten', async () => {
    const [one] = partners
    if (one === undefined) throw new Error('a partner is there')
    const after = await provedReceipt(one, receiptBefore.request_id)
    const recorded = ({ events }: Receipt) => events.map(({ proof, ...event }) => event)
    expect(recorded(after)).toEqual(recorded(receiptBefore))
    expect(after.events[0]?.proof).not.toBe(receiptBefore.events[0]?.proof)
    // The older receipt can still be verified with its own checkpoint.
    verifyReceipt(receiptBefore, trustedKey)
  })

  test('a second plan finds nothing to do, and log, read models and tariff agree', async () => {
    const again = await cliJson<{ plan: { calls_affected: number } }>(
      ['rerate', 'plan', '2', range.from, range.to, '--reason', 'once more'],
      ann,
    )
    expect(again.plan.calls_affected).toBe(0)
    const judged = await Promise.all([
      cliJson<{ ok: boolean }>(['ledger', 'reconcile'], environment),
      cliJson<{ ok: boolean }>(['ledger', 'verify'], environment),
    ])
    expect(judged.map(({ ok }) => ok)).toEqual([true, true])
  })
})
