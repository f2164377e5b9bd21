import { readFile } from 'node:fs/promises'
import type { Pool } from 'pg'
import { SettingFault } from '../../../call/capability.ts'
import type { ReadJsonLd } from '../../../egress/json-ld.ts'
import { createDatasetProvider, type DatasetSecrets } from '../dataset/provider.ts'
import type { Identifiers } from '../identifier.ts'
import { declaredMapping } from '../mapping/declared.ts'
import type { ProfileSettings } from '../settings.ts'
import { createHttpProvider } from './http-provider.ts'
import type { FetchPage, Logger } from './http-provider-attempts.ts'
import { createPageProvider } from './page-provider.ts'
import {
  type Clock,
  combineProviders,
  type ProviderObserver,
  type Providers,
  type Source,
} from './providers.ts'

/**
 * The configured sources, ready to be asked. Rejects with `SettingFault` if a variable is missing or
 * invalid.
 */
export const openProviders = async (
  settings: ProfileSettings,
  {
    pool,
    secrets,
    identifiers,
    fetchPage,
    readJsonLd,
    clock,
    epochMs,
    logger,
    observe,
  }: {
    pool: Pool
    secrets: DatasetSecrets
    identifiers: Identifiers
    fetchPage: FetchPage
    readJsonLd: ReadJsonLd
    clock: Clock
    epochMs: () => number
    logger: Logger
    observe?: ProviderObserver | undefined
  },
): Promise<Providers> => {
  const { PROFILE_PROVIDER: names, PROFILE_HTTP_MAPPING: mapping } = settings
  const timeoutMs = settings.PROFILE_HTTP_TIMEOUT_MS
  const shared = { identifiers, timeoutMs, fetchPage, clock: { now: clock.now, epochMs }, logger }
  const rewrite = mapping === undefined || !names.includes('http') ? null : await readMapping(mapping)
  const open = (name: (typeof names)[number]): Source => {
    if (name === 'dataset') return createDatasetProvider({ pool, secrets, clock: { epochMs }, logger })
    if (name === 'page') {
      const url = required('PROFILE_PAGE_URL', settings.PROFILE_PAGE_URL, name)
      return naming('PROFILE_PAGE_URL', () => createPageProvider({ ...shared, url, readJsonLd }))
    }
    const url = required('PROFILE_HTTP_URL', settings.PROFILE_HTTP_URL, name)
    return naming('PROFILE_HTTP_URL, PROFILE_HTTP_KEY', () =>
      createHttpProvider({ ...shared, url, key: settings.PROFILE_HTTP_KEY ?? null, rewrite }),
    )
  }
  return combineProviders([...new Set(names)].map(open), { clock, logger, observe })
}

const required = (variable: string, value: string | undefined, provider: string): string => {
  if (value === undefined) throw new SettingFault(`${variable}: PROFILE_PROVIDER=${provider} needs it`)
  return value
}

const naming = <Result>(variable: string, build: () => Result): Result => {
  try {
    return build()
  } catch (cause) {
    throw new SettingFault(`${variable}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    })
  }
}

const readMapping = async (path: string): Promise<ReturnType<typeof declaredMapping>> => {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (cause) {
    throw new SettingFault(`PROFILE_HTTP_MAPPING: ${path} cannot be read`, { cause })
  }
  return naming('PROFILE_HTTP_MAPPING', () => declaredMapping(JSON.parse(text)))
}
