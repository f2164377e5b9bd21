import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { anyOrganization, firstSteps, missingSentence, runs } from '../administration/first-steps.ts'
import { type Demo, demoFile, seedDemo, writeDemo } from '../administration/seed.ts'
import { passwordIsRight } from '../administration/users.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { noteAddresses } from './addresses.ts'
import type { App } from './app.ts'

type Output = { readonly print: (line: string) => void; readonly isTerminal: boolean }

export const standardOutput: Output = {
  print: (line) => void process.stdout.write(`${line}\n`),
  isTerminal: process.stdout.isTTY === true,
}

/**
 * Says on standard output that the service is ready and how to try it. The embedded default seeds a demo organization
 * on its first start and keeps its key and password in demo.json. Only a first start on a terminal prints them: what a service manager or
 * a container keeps of the output holds no secret. Where there is no user or no organization it says what to type.
 */
export const announce = async (
  foundation: Foundation,
  { apiUrl, dashboardUrl, metricsUrl }: Pick<App, 'apiUrl' | 'dashboardUrl' | 'metricsUrl'>,
  config: Config,
  { print, isTerminal }: Output,
): Promise<void> => {
  if (apiUrl !== null) print(`API        ${apiUrl}`)
  if (dashboardUrl !== null) print(`Dashboard  ${dashboardUrl}`)
  print(`Metrics    ${metricsUrl}/metrics`)
  if (apiUrl === null || dashboardUrl === null) {
    if (apiUrl !== null || dashboardUrl !== null) await announceFirstSteps(foundation, print)
    return
  }
  const urls = { apiUrl, dashboardUrl }
  await noteAddresses(config.DATA_DIR, urls)
  if (!foundation.embedded) return announceFirstSteps(foundation, print)
  const known = await knownDemo(config, urls)
  const demo =
    known ??
    ((await anyOrganization(foundation)) ? null : await seedDemo(foundation, { ...urls, actor: 'system' }))
  if (demo === null) return announceFirstSteps(foundation, print)
  await writeDemo(config.DATA_DIR, demo)
  const path = join(config.DATA_DIR, demoFile)
  const printsSecrets = known === null && isTerminal
  print(`Demo       organization ${demo.organization_id}, key and login in ${path}`)
  print(
    `Login      user ${demo.dashboard_user}, ${await passwordTold(foundation, demo, printsSecrets ? null : path)}`,
  )
  print('\nTry it:\n')
  const key = printsSecrets ? `'x-api-key: ${demo.api_key}'` : `"x-api-key: ${keyFrom(path)}"`
  print(
    `curl -i ${demo.api_url}/v1/ip/lookup -H 'content-type: application/json' -H ${key} -d '{"ip":"8.8.8.8"}'\n`,
  )
  print(`What it cost, plotted: ${dashboardUrl}/organizations/${demo.organization_id}/usage\n`)
  if (printsSecrets) print(`Key and password are printed this once; ${path} keeps them.\n`)
}

/** What to type before anyone can use the service. It goes on to answer where that cannot be known. */
const announceFirstSteps = async (foundation: Foundation, print: (line: string) => void): Promise<void> => {
  const steps = await firstSteps(foundation).catch(() => [])
  if (steps.length === 0) return
  print(`\n${missingSentence(steps)} Type, with the service's environment:\n`)
  for (const { command, note } of steps) print(`${runs.here(command)}    # ${note}`)
  print('\nor, in Docker Compose:\n')
  for (const { command } of steps) print(runs.compose(command))
  print('')
}

/** `path`: where the password is kept; null: it is printed. */
const passwordTold = async (
  { pool }: Foundation,
  { dashboard_user: name, dashboard_password: password }: Demo,
  path: string | null,
): Promise<string> => {
  if (!(await passwordIsRight(pool, { name, password })))
    return `whose password was changed since; "user password ${name}" gives a new one`
  const once = 'you choose your own when you sign in'
  return path === null ? `password ${password} (${once})` : `password in ${path}; ${once}`
}

/** What a shell reads the key with. */
const keyFrom = (path: string): string =>
  `$(sed -n 's/.*"api_key": "\\(.*\\)".*/\\1/p' '${resolve(path).replaceAll("'", `'\\''`)}')`

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
