import type { Logger } from 'pino'
import { profileCache } from '../projections/profile-cache.ts'
import type { AnyCapabilityForm } from './call/form.ts'
import {
  type AreSuppressed,
  importProfiles,
  seedDatasetIfEmpty,
} from './capabilities/profile/dataset/import.ts'
import { eraseFromDataset } from './capabilities/profile/dataset/provider.ts'
import { createIdentifiers, type Identifiers } from './capabilities/profile/identifier.ts'
import { type ProfileObserver, profile } from './capabilities/profile/index.ts'
import { createClaims } from './capabilities/profile/record/claims.ts'
import { dropOldProfiles, eraseProfile, retainedAtOnceMax } from './capabilities/profile/record/erase.ts'
import { createRetrieval } from './capabilities/profile/record/retrieval.ts'
import { datasetStore, profileKeyStore } from './capabilities/profile/record/sealed-stores.ts'
import { createVault } from './capabilities/profile/record/vault.ts'
import {
  openProviders,
  type ProviderObserver,
  type Providers,
} from './capabilities/profile/sources/providers.ts'
import { type Config, ConfigError } from './config.ts'
import { readJsonLd } from './egress/json-ld.ts'
import type { Foundation } from './foundation/foundation.ts'
import { renewSeals, type SealedStore } from './jobs/renew-seals.ts'
import { inPortions } from './jobs/retain.ts'
import type { CapabilityJobs } from './jobs/run.ts'
import type { Outside } from './outside.ts'
import { liveTable } from './projector/tables.ts'

/** What profile retrieval needs, put together: for whoever answers calls, runs jobs, or types a command. */

export type Profiles = {
  readonly form: AnyCapabilityForm
  readonly jobs: CapabilityJobs
  /** For metrics. */
  readonly providers: Providers['status']
  close(): Promise<void>
}

export const openProfiles = async (
  foundation: Foundation,
  config: Config,
  {
    outside,
    logger,
    observe,
  }: { outside: Outside; logger: Logger; observe?: ProfileObserver & ProviderObserver },
): Promise<Profiles> => {
  const { pool, eventLog, secrets } = foundation
  const identifiers = identifiersOf(config)
  const vault = vaultOf(foundation)
  const providers = await openProviders(
    {
      names: config.PROFILE_PROVIDER,
      httpUrl: config.PROFILE_HTTP_URL,
      httpKey: config.PROFILE_HTTP_KEY,
      httpMapping: config.PROFILE_HTTP_MAPPING,
      pageUrl: config.PROFILE_PAGE_URL,
      timeoutMs: config.PROFILE_HTTP_TIMEOUT_MS,
    },
    {
      pool,
      secrets: datasetSecretsOf(foundation),
      identifiers,
      fetchPage: outside.fetchUpstream,
      readJsonLd,
      clock: { now: () => performance.now(), after },
      epochMs: Date.now,
      logger,
      observe,
    },
  ).catch((error: unknown) => {
    if (error instanceof TypeError) throw new ConfigError(error.message, { cause: error })
    throw error
  })
  const retrieval = createRetrieval({
    pool,
    eventLog,
    vault,
    claims: createClaims(pool),
    provider: providers,
    identifierHmac: secrets.identifierHmac,
    clock: Date,
    logger,
  })
  return {
    form: profile({ identifiers, retrieval, observe }),
    jobs: {
      scheduled: {
        'drop-old-profiles': {
          cron: '51 * * * *',
          run: () => inPortions(retainedAtOnceMax, () => dropOldProfiles({ eventLog, vault, clock: Date })),
        },
        'renew-seals': {
          cron: '3 * * * *',
          run: () =>
            renewSeals({
              keys: foundation.epochKeys,
              stores: sealedStoresOf(foundation),
              clock: Date,
              databaseNowMs: () => databaseNowMs(pool),
              logger,
            }),
        },
      },
      queued: {},
    },
    providers: providers.status,
    close: async () => {
      await retrieval.close()
      await providers.close()
    },
  }
}

const after = (ms: number, run: () => void): (() => void) => {
  const timer = setTimeout(run, ms)
  return () => clearTimeout(timer)
}

/** Which identifiers are understood, and how profile URLs are written. */
export const identifiersOf = (config: Pick<Config, 'PROFILE_DOMAIN' | 'PROFILE_URN_PREFIX'>): Identifiers =>
  createIdentifiers({
    domain: config.PROFILE_DOMAIN ?? null,
    urnPrefix: config.PROFILE_URN_PREFIX ?? null,
  })

const datasetSecretsOf = ({ secrets, epochKeys }: Pick<Foundation, 'secrets' | 'epochKeys'>) => ({
  identifierHmac: secrets.identifierHmac,
  sealer: epochKeys.sealer('profile-dataset'),
})

const vaultOf = ({ pool, epochKeys }: Pick<Foundation, 'pool' | 'epochKeys'>) =>
  createVault({ pool, sealer: epochKeys.sealer('profile-key'), clock: Date })

/** Where rows about people are deleted. */
export const tablesOfPeople = (): string[] => [
  'profile_keys',
  'profile_dataset',
  ...profileCache.tables.map(({ name }) => liveTable(profileCache)(name)),
]

/** Everything that is sealed for longer than a day. */
export const sealedStoresOf = ({
  pool,
  epochKeys,
}: Pick<Foundation, 'pool' | 'epochKeys'>): readonly SealedStore[] => [
  profileKeyStore({ pool, sealer: epochKeys.sealer('profile-key'), clock: Date }),
  datasetStore({ pool, sealer: epochKeys.sealer('profile-dataset') }),
]

/** Asks once for all people of a portion. */
const suppressedIn =
  ({ pool, secrets }: Foundation): AreSuppressed =>
  async (people) => {
    const hmacs = people.map((aliases) => aliases.map(secrets.identifierHmac))
    const { rows } = await pool.query<{ hmac: string }>(
      'select hmac from profile_suppressions where hmac = any($1::text[])',
      [hmacs.flat()],
    )
    const suppressed = new Set(rows.map(({ hmac }) => hmac))
    return hmacs.map((own) => own.some((hmac) => suppressed.has(hmac)))
  }

/** Somebody to ask for in the embedded default; nothing where the data set holds anybody. */
export const seedProfiles = (foundation: Foundation, config: Config): Promise<number> =>
  seedDatasetIfEmpty({
    pool: foundation.pool,
    secrets: datasetSecretsOf(foundation),
    identifiers: identifiersOf(config),
    areSuppressed: suppressedIn(foundation),
    epochMs: Date.now,
  })

/** `profiles import`: JSON lines into the data set. */
export const importProfilesFrom = (
  foundation: Foundation,
  config: Config,
  { stream, onProgress }: Pick<Parameters<typeof importProfiles>[0], 'stream' | 'onProgress'>,
) =>
  importProfiles({
    pool: foundation.pool,
    secrets: datasetSecretsOf(foundation),
    stream,
    identifiers: identifiersOf(config),
    areSuppressed: suppressedIn(foundation),
    epochMs: Date.now,
    ...(onProgress === undefined ? {} : { onProgress }),
  })

/** `profiles erase`: null where the text is no identifier. The projections must have caught up. */
export const eraseProfileOf = async (
  foundation: Foundation,
  config: Config,
  { id, actor, note }: { id: string; actor: string; note: string | null },
) => {
  const { pool, eventLog, secrets } = foundation
  const ref = identifiersOf(config).parse(id)
  if (ref === null) return null
  return eraseProfile(
    {
      pool,
      eventLog,
      vault: vaultOf(foundation),
      identifierHmac: secrets.identifierHmac,
      eraseFromDataset: async (hmacs) => (await eraseFromDataset(pool, hmacs)).hmacs,
      clock: Date,
    },
    ref,
    { actor, note },
  )
}

const databaseNowMs = async (pool: Foundation['pool']): Promise<number> => {
  const { rows } = await pool.query<{ now: Date }>('select now()')
  return rows[0]?.now.getTime() ?? Number.NaN
}
