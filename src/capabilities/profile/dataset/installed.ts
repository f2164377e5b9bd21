import type { CapabilityStorage } from '../../../call/capability.ts'
import { identifiersOf, type ProfileSettings } from '../settings.ts'
import { datasetSecretsOf } from '../storage.ts'
import { type AreSuppressed, type ImportReport, importProfiles, seedDatasetIfEmpty } from './import.ts'

const suppressedIn =
  ({ pool, secrets }: CapabilityStorage): AreSuppressed =>
  async (people) => {
    const hmacs = people.map((aliases) => aliases.map(secrets.identifierHmac))
    const { rows } = await pool.query<{ hmac: string }>(
      'select hmac from profile_suppressions where hmac = any($1::text[])',
      [hmacs.flat()],
    )
    const suppressed = new Set(rows.map(({ hmac }) => hmac))
    return hmacs.map((own) => own.some((hmac) => suppressed.has(hmac)))
  }

/** Adds invented people if the data set is empty, and returns their number. */
export const seedProfiles = (storage: CapabilityStorage, settings: ProfileSettings): Promise<number> =>
  seedDatasetIfEmpty(installed(storage, settings))

/** Imports JSON lines into the data set, for `profiles import`. */
export const importProfilesFrom = (
  storage: CapabilityStorage,
  settings: ProfileSettings,
  given: Pick<Parameters<typeof importProfiles>[0], 'stream' | 'onProgress'>,
): Promise<ImportReport> => importProfiles({ ...installed(storage, settings), ...given })

const installed = (storage: CapabilityStorage, settings: ProfileSettings) => ({
  pool: storage.pool,
  secrets: datasetSecretsOf(storage),
  identifiers: identifiersOf(settings),
  areSuppressed: suppressedIn(storage),
  epochMs: Date.now,
})
