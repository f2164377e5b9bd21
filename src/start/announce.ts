import { join, resolve } from 'node:path'
import { anyOrganization, firstSteps, missingSentence, runs } from '../administration/first-steps.ts'
import { type Demo, demoFile, readDemo, seedDemo, writeDemo } from '../administration/seed.ts'
import { passwordIsRight } from '../administration/users/users.ts'
import type { Config } from '../config.ts'
import { curlOf, firstRequest } from '../dashboard/first-call.ts'
import { isLocalDemo } from '../dashboard/given-password.ts'
import { permission } from '../events/capabilities.ts'
import { noteAddresses } from '../foundation/addresses.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { App } from './app.ts'

const print = (line: string): void => void process.stdout.write(`${line}\n`)

/**
 * Prints that the service is ready and how to try it. With the embedded PostgreSQL, the first start creates a demo organization and stores its
 * key and password in demo.json. It prints them only on a terminal, so that the logs of service managers and containers contain no secret. If
 * there is no user or no organization, prints the commands that create them.
 */
export const announce = async (
  foundation: Foundation,
  { apiUrl, dashboardUrl, metricsUrl }: Pick<App, 'apiUrl' | 'dashboardUrl' | 'metricsUrl'>,
  config: Config,
): Promise<void> => {
  if (apiUrl !== null) print(`API        ${apiUrl}`)
  if (dashboardUrl !== null) print(`Dashboard  ${dashboardUrl}`)
  print(`Metrics    ${metricsUrl}/metrics`)
  if (apiUrl === null || dashboardUrl === null) {
    if (apiUrl !== null || dashboardUrl !== null) await announceFirstSteps(foundation)
    return
  }
  const urls = { apiUrl, dashboardUrl }
  await noteAddresses(config.DATA_DIR, urls)
  if (!foundation.embedded) return announceFirstSteps(foundation)
  const known = await readDemo(config.DATA_DIR)
  const seeded =
    known ??
    ((await anyOrganization(foundation)) ? null : await seedDemo(foundation, { ...urls, actor: 'system' }))
  if (seeded === null) return announceFirstSteps(foundation)
  const demo = { ...seeded, api_url: urls.apiUrl, dashboard_url: urls.dashboardUrl }
  await writeDemo(config.DATA_DIR, demo)
  const path = join(config.DATA_DIR, demoFile)
  const printsSecrets = known === null && process.stdout.isTTY === true
  print(`Demo       organization ${demo.organization_id}, key and login in ${path}`)
  print(
    `Login      user ${demo.dashboard_user}, ${await passwordText(foundation, demo, { path: printsSecrets ? null : path, isLocal: isLocalDemo(config) })}`,
  )
  const first = firstRequest(urls, permission.options)
  if (first !== undefined) {
    print('\nTry it:\n')
    const key = printsSecrets ? `'x-api-key: ${demo.api_key}'` : `"x-api-key: ${keyFrom(path)}"`
    print(`${curlOf(first, key)}\n`)
  }
  print(`Usage chart: ${dashboardUrl}/organizations/${demo.organization_id}/usage\n`)
  if (printsSecrets)
    print(`The key and password are printed only this once; they are also stored in ${path}.\n`)
}

/** Prints the commands that are needed before anyone can use the service. Prints nothing if they cannot be determined. */
const announceFirstSteps = async (foundation: Foundation): Promise<void> => {
  const steps = await firstSteps(foundation).catch(() => [])
  if (steps.length === 0) return
  print(`\n${missingSentence(steps)} Run, with the environment variables of the service:\n`)
  for (const { command, note } of steps) print(`${runs.here(command)}    # ${note}`)
  print('\nor, in Docker Compose:\n')
  for (const { command } of steps) print(runs.compose(command))
  print('')
}

/** `path` is the file that contains the password. Null: the password itself is printed. */
const passwordText = async (
  { pool }: Foundation,
  { dashboard_user: name, dashboard_password: password }: Demo,
  { path, isLocal }: { readonly path: string | null; readonly isLocal: boolean },
): Promise<string> => {
  if (!(await passwordIsRight(pool, { name, password })))
    return `whose password was changed; reset it with "user password ${name}"`
  const next = isLocal ? 'you can keep it on this machine' : 'you choose your own when you sign in'
  return path === null ? `password ${password} (${next})` : `password in ${path}; ${next}`
}

const keyFrom = (path: string): string =>
  `$(sed -n 's/.*"api_key": "\\(.*\\)".*/\\1/p' '${resolve(path).replaceAll("'", `'\\''`)}')`
