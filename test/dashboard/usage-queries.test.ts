/** Queries about all organizations read the rows of their range, and neither all organizations nor the whole history. */
import type pg from 'pg'
import { expect, test } from 'vitest'
import { accounts } from '../../projections/accounts.ts'
import { apiKeys, keysAfter } from '../../projections/api-keys.ts'
import { ledgerIndex } from '../../projections/ledger-index.ts'
import { choicesNamed } from '../../src/dashboard/picking.ts'
import {
  type UsageAsk,
  usageBySteps,
  usageGroups,
  usagePoints,
  usageTotals,
  useByCapability,
  useOfAll,
} from '../../src/dashboard/usage-queries.ts'
import { liveTable } from '../../src/projector/tables.ts'
import { databaseForFile, preparedDatabase } from '../support/postgres.ts'

const dayMs = 86_400_000
const nowMs = Date.now()

const { pool } = await databaseForFile({ open: preparedDatabase, max: 1 })
await pool.query(`insert into ${liveTable(accounts)('accounts')}
    select 'org_' || n, 'Organization ' || n, now(), 1, '', 0, 0, 0, 0, 0, 0, '' from generate_series(1, 5000) n`)
await pool.query(`insert into ${liveTable(apiKeys)('api_keys')}
    select 'key' || n, 'org_' || n % 5, 'Organization', 'Key ' || n, '', '', '{}', '{}', '{}', now() + n * interval '1 s'
      from generate_series(1, 20000) n`)
await pool.query(`insert into ${liveTable(ledgerIndex)('usage_days')}
    select 'org_' || n, (now() at time zone 'utc')::date - case when n <= 10 then 1 else 100 + n % 300 end, 'key' || n,
           'ip_lookup', 'answered', 'ip_lookup.located', 1, 1000000
      from generate_series(1, 5000) n`)
await pool.query('analyze')

type Plan = {
  readonly 'Node Type': string
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly Plans?: readonly Plan[]
}

const planOf = async (text: string, values: readonly unknown[]): Promise<Plan> => {
  const { rows } = await pool.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
    `explain (analyze, format json) ${text}`,
    [...values],
  )
  const plan = rows[0]?.['QUERY PLAN'][0].Plan
  if (plan === undefined) throw new Error('the query has no plan')
  return plan
}

const stepsOf = (plan: Plan): readonly Plan[] => [plan, ...(plan.Plans ?? []).flatMap(stepsOf)]

/** The number of rows that all steps of a query read or passed on. */
const rowsRead = (plan: Plan): number =>
  stepsOf(plan).reduce(
    (sum, step) => sum + (step['Actual Rows'] + (step['Rows Removed by Filter'] ?? 0)) * step['Actual Loops'],
    0,
  )

const ask: UsageAsk = {
  step: 'day',
  fromMs: nowMs - 30 * dayMs,
  untilMs: nowMs + dayMs,
  organizationId: null,
  keyId: null,
}

test.each([
  ['the totals', usageTotals(ask)],
  ['the groups', usageGroups(ask, 'capability', 10)],
  ['the points', usagePoints(ask, 'rule')],
  ['the sums by day', usageBySteps(ask)],
  ['the sums by capability', useByCapability(ask)],
  ['the figures of the overview', useOfAll(ask, 5)],
])(
  '%s of 30 days read a few rows, although there are many organizations and older days',
  async (_, query) => {
    expect(rowsRead(await planOf(query.text, query.values))).toBeLessThan(300)
  },
)

test.each([
  ['all keys', null],
  ["an organization's keys", 'org_3'],
])('a page of %s reads only its own rows', async (_, organizationId) => {
  const { text, values } = keysAfter(organizationId, { after: 'key15003', max: 50 })
  const plan = await planOf(text, values)
  expect(rowsRead(plan)).toBeLessThan(200)
  expect(plan['Actual Rows']).toBe(50)
})

test.each(['keys', 'organizations'] as const)(
  'the search for names of %s stores no copy of all rows',
  async (kind) => {
    const asked: { text: string; values: unknown[] }[] = []
    const watched = {
      query: (text: string, values: unknown[]) => {
        asked.push({ text, values })
        return pool.query(text, values)
      },
    } as unknown as pg.Pool
    const { found } = await choicesNamed(watched, { kind, organizationIds: null, text: '4999' })
    expect(found).not.toEqual([])
    for (const { text, values } of asked)
      expect(stepsOf(await planOf(text, values)).map((step) => step['Node Type'])).not.toContain('CTE Scan')
  },
)
