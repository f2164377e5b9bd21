import type { Pool } from 'pg'
import type { EpochSealer } from '../../../guard/secrets/secrets.ts'
import { fieldsOf } from '../mapping/fields.ts'
import { profileDataOf } from '../mapping/mapping.ts'
import type { Logger } from '../sources/http-provider-attempts.ts'
import type { ProfileData, ProfileIds, ProfileSource, ProviderAnswer } from '../sources/provider.ts'

/**
 * The operator's own people, imported into Postgres (`dataset-import.ts`).
 *
 * The dataset's current content is the current knowledge: reading the current row is a fresh fetch, like asking any other
 * source, and `observedAtMs` is the time of reading. The import date stays with the row. If it were the observation time,
 * `cached: false` could never be answered from a dataset, and `cached: true` not from a month after the import,
 * although no newer data exists anywhere.
 */
export const createDatasetProvider = ({
  pool,
  secrets,
  clock,
  logger,
}: {
  pool: Pick<Pool, 'query'>
  secrets: DatasetSecrets
  clock: { epochMs: () => number }
  logger: Logger
}): ProfileSource => ({
  name: 'dataset',
  fetch: async (ref) => {
    try {
      const hmac = secrets.identifierHmac(`${ref.kind}:${ref.value}`)
      const { rows } = await pool.query<SealedRow>(ref.kind === 'lid' ? selectByLid : selectByUrn, [hmac])
      const [row] = rows
      return row === undefined ? { kind: 'not_found' } : answerOf(openRow(row, secrets), clock.epochMs())
    } catch (error) {
      logger.error({ err: error }, 'the profile dataset cannot be read')
      return { kind: 'transient', detail: 'the dataset cannot be read' }
    }
  },
})

/** Encrypts the dataset, so that access to the database alone cannot read it. */
export type DatasetSecrets = {
  readonly identifierHmac: (alias: string) => string
  readonly sealer: EpochSealer
}

/** `data` null: the dataset marks this person as deleted. */
export type DatasetPerson = ProfileIds & { readonly data: ProfileData | null }

export const sealRow = (
  person: DatasetPerson,
  lidHmac: string,
  { sealer }: DatasetSecrets,
): Promise<string> => sealer.seal(JSON.stringify(person), lidHmac)

type SealedRow = { readonly lid_hmac: string; readonly sealed: string }

const openRow = ({ lid_hmac, sealed }: SealedRow, { sealer }: DatasetSecrets): DatasetPerson => {
  const text = sealer.open(sealed, lid_hmac)
  if (text === null)
    throw new Error(`a person in the dataset cannot be read: their epoch key ${sealed.split('.')[0]} is gone`)
  return JSON.parse(text) as DatasetPerson
}

const selectByLid = 'select lid_hmac, sealed from profile_dataset where lid_hmac = $1 limit 1'
const selectByUrn = 'select lid_hmac, sealed from profile_dataset where urn_hmac = $1 limit 1'

const answerOf = ({ lid, urn, data }: DatasetPerson, nowMs: number): ProviderAnswer =>
  data === null
    ? { kind: 'gone' }
    : {
        kind: 'found',
        ids: { lid, urn },
        data: profileDataOf(fieldsOf(data)),
        observedAtMs: nowMs,
        redirected: false,
      }

/**
 * Deletes everyone known by one of the identifiers, given as keyed HMACs, and returns all identifiers of the deleted people:
 * more of them may have to be suppressed than were asked for.
 *
 * Suppressions must be committed before this is called. An import locks the table against writers, this one included,
 * before it asks who is suppressed. So either it has written before, and its rows are deleted here, or it asks after.
 */
export const eraseFromDataset = async (
  pool: Pick<Pool, 'query'>,
  hmacs: readonly string[],
): Promise<{ readonly removed: number; readonly hmacs: readonly string[] }> => {
  const { rows } = await pool.query<{ lid_hmac: string; urn_hmac: string | null }>(deleteRows, [hmacs])
  return {
    removed: rows.length,
    hmacs: rows.flatMap(({ lid_hmac, urn_hmac }) => [lid_hmac, urn_hmac ?? []].flat()),
  }
}

const deleteRows =
  'delete from profile_dataset where lid_hmac = any($1) or urn_hmac = any($1) returning lid_hmac, urn_hmac'
