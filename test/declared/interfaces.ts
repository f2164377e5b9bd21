/** The three administrative interfaces as functions with a common input and a common answer. */

import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { expect } from 'vitest'
import { adminMethodOf } from '../../src/admin-api/openapi.ts'
import type { Declared, Given } from '../../src/administration/declare.ts'
import { workInStores } from '../../src/cli/declared.ts'
import { contextOf } from '../../src/cli/host.ts'
import { givenIn, typedIn } from '../../src/cli/parse.ts'
import { parseConfig } from '../../src/config.ts'
import { type Browser, type DashboardHost, encoded, hiddenIn, waited } from '../dashboard/dashboard-host.ts'
import { writeCityFile } from '../support/house.ts'

export type Person = {
  readonly user: string
  readonly role: 'admin' | 'finance' | 'operations' | 'viewer' | 'partner'
  readonly browser: Browser
  readonly token: string
}

const folder = mkdtempSync(join(tmpdir(), 'documents-'))

export const environment = { GEOIP_CITY_DB: await writeCityFile(folder) }
const config = parseConfig({ SECRET_KEY: 'a secret of at least thirty-two characters', ...environment })
let files = 0

const fileOf = (document: unknown): string => {
  const path = join(folder, `${++files}.json`)
  writeFileSync(path, textOf(document))
  return path
}

/** The input as command-line arguments. */
const argumentsOf = ({ fields }: Declared, given: Given): string[] =>
  fields.flatMap(({ name, flag, control, named }) => {
    const value = given[name]
    if (value === undefined) return []
    if (control === 'flag') return value === true ? [`--${flag}`] : []
    if (control === 'document' && (typeof value === 'object' || named === undefined))
      return [`--${flag}`, fileOf(value)]
    return [`--${flag}`, Array.isArray(value) ? value.join(',') : String(value)]
  })

/** Runs the command on the command line and returns the JSON of its answer. */
export const onCommandLine = async (
  { foundation }: DashboardHost,
  { user, role }: Person,
  declared: Declared,
  given: Given,
): Promise<unknown> => {
  const typed = typedIn(declared, argumentsOf(declared, given))
  const machine = { config, logger: pino({ level: 'silent' }), progress: () => undefined }
  let text = ''
  const { json, written } = await workInStores(declared, {
    typed,
    given: await givenIn(declared.fields, typed),
    json: true,
    open: async () => contextOf(foundation, { actor: `user:${user}`, role }, machine),
    write: async (more) => {
      text += more
    },
    leaves: () => undefined,
  }).run()
  return JSON.parse(written === true ? text : JSON.stringify(json))
}

const textOf = (value: unknown): string => (typeof value === 'object' ? JSON.stringify(value) : String(value))

const pathOf = (declared: Declared, organizationId: string): string => {
  const scoped = declared.fields.some(({ control }) => control === 'organization')
  const path = declared.name.replace(' ', '/')
  return scoped ? `/organizations/${organizationId}/${path}` : `/commands/${path}`
}

const formOf = ({ fields }: Declared, given: Given): Record<string, string | string[]> =>
  Object.fromEntries(
    fields.flatMap(({ name, flag, control }) => {
      const value = given[name]
      if (value === undefined || value === false || control === 'organization') return []
      if (control === 'document') return [[flag, textOf(value)]]
      return [[flag, control === 'flag' ? 'on' : Array.isArray(value) ? value.map(String) : String(value)]]
    }),
  )

/** Runs the command on the dashboard. Returns the last page, and the pages before it. */
export const onDashboard = async (
  { browser }: Pick<Person, 'browser'>,
  declared: Declared,
  given: Given,
  organizationId: string,
) => {
  const path = pathOf(declared, organizationId)
  const form = formOf(declared, given)
  if (adminMethodOf(declared) === 'GET') {
    const query = encoded(form)
    const at = declared.types === undefined ? path : `${path}/file`
    return [await browser.get(query === '' ? at : `${at}?${query}`)]
  }
  const first = await waited(browser, await browser.submit(path, form))
  if (!first.body.includes('name="confirmed"')) return [first]
  return [first, await waited(browser, await browser.post(path, encoded(hiddenIn(first.body))))]
}

export const onApi = async (
  { host }: Pick<DashboardHost, 'host'>,
  { token }: Pick<Person, 'token'>,
  declared: Declared,
  given: Given,
  { headers = {}, query = {} }: { headers?: Record<string, string>; query?: Record<string, string> } = {},
) => {
  const url = `/admin/v1/${declared.name.replace(' ', '/')}`
  const authorization = { authorization: `Bearer ${token}` }
  if (adminMethodOf(declared) === 'POST') {
    return host.inject({
      method: 'POST',
      url,
      query,
      headers: { ...authorization, 'content-type': 'application/json', ...headers },
      payload: JSON.stringify(given),
    })
  }
  const asked = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, textOf(value)]))
  return host.inject({
    method: 'GET',
    url,
    query: { ...asked, ...query },
    headers: { ...authorization, ...headers },
  })
}

/** A job can refund a hundred calls, each with its own append. */
const jobMaxMs = 120_000

/** Waits for the job of long-running work, from the answer that accepted it, and returns the finished job. */
export const jobEnded = async (
  { host }: Pick<DashboardHost, 'host'>,
  { token }: Pick<Person, 'token'>,
  accepted: Pick<Awaited<ReturnType<typeof onApi>>, 'headers'>,
) => {
  const url = String(accepted.headers.location)
  const job = async (): Promise<{ state: string; answer: unknown; error: string | null }> =>
    (await host.inject({ url, headers: { authorization: `Bearer ${token}` } })).json()
  const state = async () => (await job()).state
  await expect
    .poll(state, { interval: 20, timeout: jobMaxMs })
    .toEqual(expect.not.stringMatching(/^(waiting|running)$/))
  return job()
}

/** Parses a text in the JSON Lines format. */
export const linesIn = (text: string): unknown[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
