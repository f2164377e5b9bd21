import type { CapabilityStorage } from '../../call/capability.ts'
import { type DatasetSecrets, eraseFromDataset } from './dataset/provider.ts'
import type { ErasureParts } from './record/erase.ts'
import { createVault, type Vault } from './record/vault.ts'

export const vaultOf = ({ pool, epochKeys }: CapabilityStorage): Vault =>
  createVault({ pool, sealer: epochKeys.sealer('profile-key'), clock: Date })

export const datasetSecretsOf = ({ secrets, epochKeys }: CapabilityStorage): DatasetSecrets => ({
  identifierHmac: secrets.identifierHmac,
  sealer: epochKeys.sealer('profile-dataset'),
})

export const erasureParts = (storage: CapabilityStorage): ErasureParts => ({
  pool: storage.pool,
  eventLog: storage.eventLog,
  vault: vaultOf(storage),
  identifierHmac: storage.secrets.identifierHmac,
  eraseFromDataset: async (hmacs) => (await eraseFromDataset(storage.pool, hmacs)).hmacs,
  erasures: storage.erasures,
  clock: Date,
})
