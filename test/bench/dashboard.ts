import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { ulid } from 'ulid'
import { projections } from '../../projections/index.ts'
import { changePassword, createUser } from '../../src/administration/users/user-changes.ts'
import { parseConfig } from '../../src/config.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { openForms } from '../support/forms.ts'
import type { Service } from '../support/service.ts'
import { openHistories } from './ledger-history.ts'
import { onOne, openLoadGenerator } from './load.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { openAccount, startOn } from './service.ts'
import { logger, openStore } from './store.ts'

/** Measures the dashboard's pages over a long log with many organizations, and calls while people use these pages. */

const organizations = 500
const historyDays = 20
const dayMs = 86_400_000
const people = 5
const readMs = 1_000
const callsPerSecond = 100
const firstByteMsMost = 300
const slowdownMost = 1.2
const password = 'chosen for the benchmark'

export const dashboardPages = async ({ events, rounds, seconds, report }: BenchOptions): Promise<Row[]> => {
  const store = await openStore()
  const foundation = await openFoundation(parseConfig(store.environment), { logger })
  const load = openLoadGenerator()
  try {
    const ids = Array.from({ length: organizations }, () => `org_${ulid()}`)
    const { apiKey } = await openAccount(foundation)
    for (const name of names()) {
      await createUser(foundation, { name, role: 'admin', organizationId: null, actor: 'system' })
      await changePassword(foundation, { name, actor: name, chosen: password })
    }
    await write(foundation, ids, events, report)
    const rows: Row[] = []
    let sessions: readonly string[] = []
    const together = await startOn(store, { ROLES: 'api,dashboard,projector' })
    try {
      sessions = await signInAll(together.dashboardUrl)
      const [session = ''] = sessions
      const paths = await pathsOf(foundation, ids[0] ?? '')
      for (const [what, path] of Object.entries(paths)) {
        const times: number[] = []
        for (let round = 0; round < rounds; round++)
          times.push(await firstByteMs(together.dashboardUrl, path, session))
        report(`dashboard: ${what}: ${times.map((ms) => ms.toFixed(0)).join(', ')} ms`)
        rows.push(figureRow(`${what}: first byte`, median(times), 'ms', { most: firstByteMsMost }))
      }
    } finally {
      await together.end('SIGTERM')
    }
    for (const { where, roles } of layouts) {
      const processes: Service[] = []
      try {
        // Sign-ins are limited per address, so the people keep their cookies, whose names contain the port.
        const { port: DASHBOARD_PORT } = new URL(together.dashboardUrl)
        for (const one of roles) processes.push(await startOn(store, { ROLES: one, DASHBOARD_PORT }))
        const [api, dashboard = api] = processes
        if (api === undefined || dashboard === undefined) throw new Error('no process was started')
        const port = Number(new URL(api.apiUrl).port)
        const calls = async (seed: number): Promise<number> =>
          (
            await load.run({
              ...onOne({ port, apiKey }),
              connections: 8,
              seconds,
              rate: callsPerSecond,
              seed,
            })
          ).p99Ms
        rows.push(
          await slowdown({
            where,
            rounds,
            report,
            calls,
            url: dashboard.dashboardUrl,
            sessions,
            paths: Object.values(await pathsOf(foundation, ids[0] ?? '')),
          }),
        )
      } finally {
        for (const process of processes) await process.end('SIGTERM')
      }
    }
    return rows
  } finally {
    await load.stop()
    await foundation.close()
    await store.close()
  }
}

/** The layouts of processes in which calls are measured. The second is that of docker-compose.yml. */
const layouts = [
  { where: 'in the same process', roles: ['api,dashboard,projector'] },
  { where: 'in a separate process', roles: ['api,projector', 'dashboard'] },
] as const

const slowdown = async ({
  where,
  rounds,
  report,
  calls,
  url,
  sessions,
  paths,
}: Pick<BenchOptions, 'rounds' | 'report'> & {
  readonly where: string
  /** Makes calls, and resolves with their p99 in milliseconds. */
  readonly calls: (seed: number) => Promise<number>
  readonly url: string
  readonly sessions: readonly string[]
  readonly paths: readonly string[]
}): Promise<Row> => {
  await calls(1)
  const alone: number[] = []
  const beside: number[] = []
  for (let round = 0; round < rounds; round++) {
    alone.push(await calls(2 * round + 2))
    const using = new AbortController()
    const readers = sessions.map((session, person) =>
      read(url, paths, { session, person, signal: using.signal }),
    )
    beside.push(await calls(2 * round + 3))
    using.abort()
    const pagesRead = (await Promise.all(readers)).reduce((sum, count) => sum + count, 0)
    report(
      `dashboard ${where}: p99 ${alone.at(-1)} ms, and ${beside.at(-1)} ms while ${people} people read ${pagesRead} pages`,
    )
  }
  return ratioRow(`p99 of calls while ${people} people use the dashboard ${where}`, {
    measured: median(beside),
    against: median(alone),
    unit: 'ms',
    bound: { most: slowdownMost },
  })
}

const signInAll = async (url: string): Promise<string[]> => {
  const sessions = []
  for (const name of names()) sessions.push(await signIn(url, name))
  return sessions
}

const names = (): string[] => Array.from({ length: people }, (_, n) => `reader${n + 1}`)

const write = async (
  { url, migrationUrl, eventLog, secrets }: Foundation,
  ids: readonly string[],
  events: number,
  report: BenchOptions['report'],
): Promise<void> => {
  const to = Date.now() - 60_000
  const ledgers = openHistories(url, ids)
  let written = 0
  for (let day = historyDays; day > 0; day--) {
    const from = to - day * dayMs
    written += await ledgers.grow(Math.round(events / historyDays / ids.length), { from, to: from + dayMs })
  }
  report(`dashboard: wrote ${written} events`)
  const client = new pg.Client({ connectionString: migrationUrl })
  await client.connect()
  await client.query('update projection_checkpoints set position = (select position from log_head)')
  const startedAt = performance.now()
  await rebuildProjections({ url, eventLog, seal: secrets.rowSeal, projections })
  report(`dashboard: rebuilt in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`)
  await client.query('vacuum analyze')
  await client.end()
}

/** Pages by the question they answer. */
const pathsOf = async ({ pool }: Foundation, organization: string): Promise<Record<string, string>> => {
  const { rows } = await pool.query<{ request_id: string }>(
    'select request_id from ledger_lines where ledger = ledger_key($1) and calls is not null order by revision desc limit 1',
    [organization],
  )
  return {
    overview: '/',
    'overview of 30 days': '/?range=30d',
    organizations: '/commands/org/list',
    'calls of all organizations': '/calls',
    // The worst case: no call in this history matches, so the page looks through as many lines as it is allowed to.
    'calls, by a filter that none matches': '/calls?range=30d&capability=email_validation',
    'calls of one organization': `/organizations/${organization}/calls?range=30d`,
    'one call': `/organizations/${organization}/calls/${rows[0]?.request_id}`,
    'usage of one organization': `/organizations/${organization}/usage?range=30d`,
    'account of one organization': `/organizations/${organization}`,
    audit: '/commands/audit/list',
  }
}

/** Reads pages in turn, at a person's pace and not in step with other readers, until aborted. Resolves with the number of pages read. */
const read = async (
  url: string,
  paths: readonly string[],
  { session, person, signal }: { session: string; person: number; signal: AbortSignal },
): Promise<number> => {
  let count = 0
  await setTimeout((person * readMs) / people)
  while (!signal.aborted) {
    await firstByteMs(url, paths[(person + count++) % paths.length] ?? '/', session)
    await setTimeout(readMs)
  }
  return count
}

const firstByteMs = async (url: string, path: string, cookie: string): Promise<number> => {
  const startedAt = performance.now()
  const answer = await fetch(`${url}${path}`, {
    headers: { cookie, accept: 'text/html' },
    redirect: 'manual',
  })
  const ms = performance.now() - startedAt
  const text = await answer.text()
  if (answer.status !== 200)
    throw new Error(`${path} was answered with ${answer.status}: ${text.slice(0, 500)}`)
  return ms
}

/** Resolves with the session's cookies. */
const signIn = async (url: string, name: string): Promise<string> => {
  const { cookie, submit } = openForms(url)
  await submit('/login', '/login', { name, password })
  return cookie()
}
