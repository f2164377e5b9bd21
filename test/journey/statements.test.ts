import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { changeEvent } from '../support/segments.ts'
import { cli, cliJson } from '../support/service.ts'

/** A month of the finance team's work on the command line: view it, close it, correct it, detect a change. */

let database: TestDatabase
let environment: Record<string, string>
let org: string
let dir: string

beforeAll(async () => {
  database = await testDatabase()
  environment = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
  dir = await mkdtemp(join(tmpdir(), 'statements-'))
  const made = await cliJson<{ organization_id: string }>(['org', 'create', 'One'], environment)
  org = made.organization_id
  await write([
    { key: 'a', at: '2026-01-10T00:00:00.000Z', amount: '10', expiresAt: '2026-01-20T00:00:00.000Z' },
    { key: 'b', at: '2026-01-11T00:00:00.000Z', amount: '4', expiresAt: null },
  ])
})

afterAll(async () => {
  await rm(dir, { recursive: true, force: true })
  await database.drop()
})

type Grant = { key: string; at: string; amount: string; expiresAt: string | null }

/** Grants with any date, because operators' commands cannot take effect in the past. */
const write = async (grants: readonly Grant[]): Promise<void> => {
  const foundation = await openFoundation(parseConfig(environment), { logger: pino({ level: 'silent' }) })
  try {
    for (const { key, at, amount, expiresAt } of grants)
      await foundation.ledger.submit(org, {
        key,
        atMs: Date.parse(at),
        actor: 'test',
        kind: 'grant',
        amount: parseCredits(amount),
        priority: 100,
        expiresAt,
        reason: 'test',
      })
  } finally {
    await foundation.close()
  }
}

const file = (name: string): string => join(dir, name)
const save = (form: string, name: string, ...more: string[]) =>
  cli(['ledger', 'statement', org, '2026-01', form, '--out', file(name), ...more], environment)

describe('a month', { timeout: 120_000 }, () => {
  test('is viewed, closed once, and stays the same file when later events concern it', async () => {
    const { out } = await cli(['ledger', 'statement', org, '2026-01'], environment)
    expect(out).toMatch(/2026-01: open, as of revision 2\n/)
    expect(out).toMatch(/^closing: +14$/m)
    const closed = await cliJson<Record<string, unknown>>(
      ['ledger', 'close', org, '2026-01', '--yes'],
      environment,
    )
    expect(closed).toMatchObject({ state: 'closed', closing: '4', expired_lots: 1 })
    const all = await cliJson<Record<string, unknown>[]>(
      ['ledger', 'close', '--all', '2026-01', '--yes'],
      environment,
    )
    expect(all).toEqual([expect.objectContaining({ state: 'closed already', digest: closed.digest })])

    expect((await save('--jsonl', 'first.jsonl')).code).toBe(0)
    expect((await stat(file('first.jsonl'))).mode & 0o777).toBe(0o600)
    await write([{ key: 'late', at: '2026-01-15T00:00:00.000Z', amount: '1', expiresAt: null }])
    expect((await save('--jsonl', 'second.jsonl')).code).toBe(0)
    expect(await readFile(file('second.jsonl'), 'utf8')).toBe(await readFile(file('first.jsonl'), 'utf8'))
    const next = await cli(['ledger', 'statement', org, '2026-02', '--csv'], environment)
    expect(next.out.split('\r\n').find((row) => row.includes(',grant,'))).toMatch(/,2026-01$/)
    const summary = await cliJson(['ledger', 'statement', org, '2026-02'], environment)
    expect(summary).toMatchObject({
      state: 'open',
      totals: { opening: '4', granted: '1', closing: '5' },
      corrections: [{ month: '2026-01', count: 1, amount: '1' }],
    })
  })

  test('does not overwrite an existing file unless requested', async () => {
    const refused = await save('--csv', 'first.jsonl')
    expect(refused).toMatchObject({ code: 2, err: expect.stringContaining('already exists') })
    expect((await save('--csv', 'first.jsonl', '--force')).code).toBe(0)
    expect(await readFile(file('first.jsonl'), 'utf8')).toMatch(/^revision,event_id,/)
  })

  test('is refused with its name if it was changed, and no file is written', async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 1 })
    await changeEvent(pool, { stream: `ledger-${org}`, revision: 2 }, ({ data }) => ({
      data: data.replace('"amount":"4"', '"amount":"5"'),
    }))
    await pool.end()
    const { code, err } = await save('--csv', 'changed.csv')
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringMatching(/differs from the statement that was closed.* revision 2, event/),
    })
    expect((await readdir(dir)).filter((name) => name.startsWith('changed'))).toEqual([])
  })
})
