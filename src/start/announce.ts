import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { type Demo, demoFile, seedDemo, writeDemo } from '../administration/seed.ts'
import { passwordIsRight } from '../administration/users.ts'
import type { Config } from '../config.ts'
import { logStart } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { noteAddresses } from './addresses.ts'
import type { App } from './app.ts'

/**
 * Says on standard output that the service is ready and how to try it. The embedded default seeds a demo organization
 * on its first start, which prints its key and password; later starts find them in demo.json and print where they are.
 */
export const announce = async (
  foundation: Foundation,
  {
    apiUrl,
    dashboardUrl,
    metricsUrl,
    processes = 1,
  }: Pick<App, 'apiUrl' | 'dashboardUrl' | 'metricsUrl'> & { readonly processes?: number },
  config: Config,
  print: (line: string) => void,
): Promise<void> => {
  if (apiUrl !== null) print(`API        ${apiUrl}${processes === 1 ? '' : `  (${processes} processes)`}`)
  if (dashboardUrl !== null) print(`Dashboard  ${dashboardUrl}`)
  if (metricsUrl !== null) print(`Metrics    ${metricsUrl}/metrics`)
  if (apiUrl === null || dashboardUrl === null) return
  const urls = { apiUrl, dashboardUrl }
  await noteAddresses(config.DATA_DIR, urls)
  if (!foundation.embedded) return
  const known = await knownDemo(config, urls)
  const demo =
    known ??
    ((await noOrganizations(foundation)) ? await seedDemo(foundation, { ...urls, actor: 'system' }) : null)
  if (demo === null) return
  await writeDemo(config.DATA_DIR, demo)
  const path = join(config.DATA_DIR, demoFile)
  print(`Demo       organization ${demo.organization_id}, key and login in ${path}`)
  print(
    `Login      user ${demo.dashboard_user}, ${await passwordTold(foundation, demo, known !== null, path)}`,
  )
  print('\nTry it:\n')
  // Printed once: what a service manager keeps of later starts holds no secret.
  const key = known === null ? `'x-api-key: ${demo.api_key}'` : `"x-api-key: ${keyFrom(path)}"`
  print(
    `curl -i ${demo.api_url}/v1/ip/lookup -H 'content-type: application/json' -H ${key} -d '{"ip":"8.8.8.8"}'\n`,
  )
  if (known === null) print(`Key and password are printed this once; ${path} keeps them.\n`)
}

const passwordTold = async (
  { pool }: Foundation,
  { dashboard_user: name, dashboard_password: password }: Demo,
  before: boolean,
  path: string,
): Promise<string> => {
  if (!(await passwordIsRight(pool, { name, password })))
    return `whose password was changed since; "user password ${name}" gives a new one`
  return before ? `password in ${path}` : `password ${password}`
}

/** What a shell reads the key with. */
const keyFrom = (path: string): string =>
  `$(sed -n 's/.*"api_key": "\\(.*\\)".*/\\1/p' '${resolve(path).replaceAll("'", `'\\''`)}')`

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
