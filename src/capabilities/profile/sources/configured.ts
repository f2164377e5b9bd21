import { readFile } from 'node:fs/promises'
import type { Pool } from 'pg'
import { SettingFault } from '../../../call/capability.ts'
import { createDatasetProvider, type DatasetSecrets } from '../dataset/provider.ts'
import type { Identifiers } from '../identifier.ts'
import { declaredMapping } from '../mapping/declared.ts'
import type { ProfileSettings } from '../settings.ts'
import { type Clock, type GuardedSource, guardSource, type SourceObserver } from './guarded-source.ts'
import { createHttpProvider, type FetchPage, type Logger } from './http-provider.ts'

/** Opens the configured source. Rejects with `SettingFault` if a variable is missing or invalid. */
export const openSource = async (
  settings: ProfileSettings,
  {
    pool,
    secrets,
    identifiers,
    fetchPage,
    clock,
    epochMs,
    logger,
    observe,
  }: {
    pool: Pool
    secrets: DatasetSecrets
    identifiers: Identifiers
    fetchPage: FetchPage
    clock: Clock
    epochMs: () => number
    logger: Logger
    observe?: SourceObserver | undefined
  },
): Promise<GuardedSource> => {
  const guard = { clock, logger, observe }
  if (settings.PROFILE_PROVIDER === 'dataset')
    return guardSource(createDatasetProvider({ pool, secrets, clock: { epochMs }, logger }), guard)
  const { PROFILE_HTTP_URL: url, PROFILE_HTTP_KEY: key = null, PROFILE_HTTP_MAPPING: mapping } = settings
  if (url === undefined) throw new SettingFault('PROFILE_HTTP_URL: required by PROFILE_PROVIDER=http')
  const rewrite = mapping === undefined ? null : await readMapping(mapping)
  const source = naming('PROFILE_HTTP_URL, PROFILE_HTTP_KEY', () =>
    createHttpProvider({
      url,
      key,
      rewrite,
      identifiers,
      fetchPage,
      logger,
      timeoutMs: settings.PROFILE_HTTP_TIMEOUT_MS,
      clock: { now: clock.now, epochMs },
    }),
  )
  return guardSource(source, guard)
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
