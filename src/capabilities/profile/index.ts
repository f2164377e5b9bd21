import { type Capability, usualJobSecondsMax } from '../../call/capability.ts'
import type { CapabilityForm } from '../../call/form.ts'
import { afterMs } from '../../concurrency/deadline.ts'
import { readJsonLd } from '../../egress/json-ld.ts'
import { profilesErase, profilesImport } from './commands.ts'
import { type ProfileRequest, type ProfileResult, parseProfileRequest, profileCall } from './contract.ts'
import { profileData } from './data.ts'
import { seedProfiles } from './dataset/installed.ts'
import { decide, type ProfileFindings } from './decide.ts'
import { gather, type ProfileParts } from './gather.ts'
import { keyedUses } from './keyed-uses.ts'
import { meterProviders, observerOf } from './metrics.ts'
import { recognizePerson } from './recognize.ts'
import { createClaims } from './record/claims.ts'
import { dropOldProfiles, eraseAgain, retainedAtOnceMax } from './record/erase.ts'
import { createRetrieval } from './record/retrieval.ts'
import { datasetStore, profileKeyStore } from './record/sealed-stores.ts'
import { rehearsal } from './rehearsal.ts'
import { identifiersOf, type ProfileSettings } from './settings.ts'
import { openProviders } from './sources/configured.ts'
import { datasetSecretsOf, erasureParts, vaultOf } from './storage.ts'

/**
 * Profile retrieval (Spec §4.3): one person's data, cached or fresh, by whichever identifier. Answers hold a person's
 * data and are never kept.
 */
export const profile: Capability<ProfileSettings> = {
  hosts: ['api'],
  calls: [profileCall],
  open: async (ports) => {
    const { pool, eventLog, secrets, settings, meters, logger } = ports
    const observe = observerOf(meters)
    const identifiers = identifiersOf(settings)
    const erasedAgain = await eraseAgain(erasureParts(ports))
    if (erasedAgain > 0)
      logger.warn(
        { people: erasedAgain },
        'these rows are older than erasures: who was erased is erased again',
      )
    const vault = vaultOf(ports)
    const providers = await openProviders(settings, {
      pool,
      secrets: datasetSecretsOf(ports),
      identifiers,
      fetchPage: ports.outside.fetchUpstream,
      readJsonLd,
      clock: { now: () => performance.now(), after: afterMs },
      epochMs: Date.now,
      logger,
      observe,
    })
    meterProviders(meters, providers.status)
    const retrieval = createRetrieval({
      pool,
      eventLog,
      vault,
      claims: createClaims(pool),
      provider: providers,
      identifierHmacs: secrets.identifierHmacs,
      clock: Date,
      logger,
      limits: { fetchesMax: settings.PROFILE_FETCHES_MAX },
    })
    if (ports.embedded && settings.PROFILE_PROVIDER.includes('dataset')) await seedProfiles(ports, settings)
    return {
      forms: [profileForm({ identifiers, retrieval, observe })],
      jobs: {
        'drop-old-profiles': {
          cron: '51 * * * *',
          expireSeconds: usualJobSecondsMax,
          run: () => dropOldProfiles({ eventLog, vault, clock: Date }),
          portionMax: retainedAtOnceMax,
        },
      },
      close: async () => {
        await retrieval.close()
        await providers.close()
      },
    }
  },
  commands: [profilesImport, profilesErase],
  data: profileData,
  recognizes: recognizePerson,
  keyed: keyedUses,
  sealed: ({ pool, epochKeys }) => [
    profileKeyStore({ pool, sealer: epochKeys.sealer('profile-key'), clock: Date }),
    datasetStore({ pool, sealer: epochKeys.sealer('profile-dataset') }),
  ],
}

const profileForm = (
  parts: ProfileParts,
): CapabilityForm<ProfileRequest, ProfileFindings, ProfileResult> => ({
  ...profileCall,
  personal: true,
  parse: (body) => parseProfileRequest(body, parts.identifiers),
  rehearse: rehearsal(parts.identifiers),
  gather: (input, caller) => gather(parts, input, caller),
  decide,
})
