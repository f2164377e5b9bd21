import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { App } from '../app.ts'
import type { Config } from '../config.ts'
import { logStart } from '../event-log/port.ts'
import type { Foundation } from './foundation.ts'
import { type Demo, demoFile, seedDemo, writeDemo } from './seed.ts'
import { signsIn } from './users.ts'

/**
 * Says on standard output that the service is ready and how to try it. The embedded default seeds a demo organization
 * on its first start; later starts find it in demo.json.
 */
export const announce = async (
  foundation: Foundation,
  { apiUrl, dashboardUrl, metricsUrl }: Pick<App, 'apiUrl' | 'dashboardUrl' | 'metricsUrl'>,
  config: Config,
  print: (line: string) => void,
): Promise<void> => {
  if (apiUrl !== null) print(`API        ${apiUrl}`)
  if (dashboardUrl !== null) print(`Dashboard  ${dashboardUrl}`)
  print(`Metrics    ${metricsUrl}/metrics`)
  if (!foundation.embedded || apiUrl === null || dashboardUrl === null) return
  const urls = { apiUrl, dashboardUrl }
  const demo =
    (await knownDemo(config, urls)) ??
    ((await noOrganizations(foundation)) ? await seedDemo(foundation, urls) : null)
  if (demo === null) return
  await writeDemo(config.DATA_DIR, demo)
  print(
    `Demo       organization ${demo.organization_id}, key and login in ${join(config.DATA_DIR, demoFile)}`,
  )
  print(
    (await signsIn(foundation.pool, { name: demo.dashboard_user, password: demo.dashboard_password }))
      ? `Login      user ${demo.dashboard_user}, password ${demo.dashboard_password}`
      : `Login      user ${demo.dashboard_user}, whose password was changed since; "user create ${demo.dashboard_user}" gives a new one`,
  )
  print('\nTry it:\n')
  print(
    `curl -i ${demo.api_url}/v1/ip/lookup -H 'content-type: application/json' -H 'x-api-key: ${demo.api_key}' -d '{"ip":"8.8.8.8"}'\n`,
  )
}

/** Asked of the event log's fold, not of a flag: a first start that failed half-way is a first start again. */
const noOrganizations = async ({ eventLog }: Foundation): Promise<boolean> => {
  const looking = new AbortController()
  try {
    for await (const item of eventLog.subscribe({
      after: logStart,
      prefixes: ['ledger-'],
      batchMax: 1,
      signal: looking.signal,
    })) {
      if (item.kind === 'events') return false
      if (item.kind === 'caught-up') return true
    }
    return false
  } finally {
    looking.abort()
  }
}

const knownDemo = async (
  config: Config,
  urls: { apiUrl: string; dashboardUrl: string },
): Promise<Demo | null> => {
  const text = await readFile(join(config.DATA_DIR, demoFile), 'utf8').catch(() => null)
  if (text === null) return null
  try {
    return { ...(JSON.parse(text) as Demo), api_url: urls.apiUrl, dashboard_url: urls.dashboardUrl }
  } catch {
    return null
  }
}
