import type { Pool } from 'pg'
import type { EpochSealer } from '../../../guard/secrets.ts'
import { fieldsOf } from '../mapping/fields.ts'
import { profileDataOf } from '../mapping/mapping.ts'
import type { Logger } from '../sources/http-provider-attempts.ts'
import type { ProfileData, ProfileIds, ProfileProvider, ProviderAnswer } from '../sources/provider.ts'

/**
 * The operator's own people, imported into Postgres (`dataset-import.ts`).
 *
 * What the dataset says now is what is known now: reading the current row is a fresh fetch, as asking any other source
 * is, and `observedAtMs` is the time of reading. The date of the import stays with the row. Were it the observation,
 * `cached: false` could never be answered from a dataset, and `cached: true` not from a month after the import on,
 * although nothing newer exists anywhere.
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
}): ProfileProvider => ({
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

/** What keeps the dataset unreadable for a person who has only the database. */
export type DatasetSecrets = {
  readonly identifierHmac: (alias: string) => string
  readonly sealer: EpochSealer
}

/** `data` null: the dataset says that this person is gone. */
export type DatasetPerson = ProfileIds & { readonly data: ProfileData | null }

export const sealRow = (
  person: DatasetPerson,
  lidHmac: string,
  { sealer }: DatasetSecrets,
): Promise<string> => sealer.seal(JSON.stringify(person), lidHmac)

type SealedRow = { readonly lid_hmac: string; readonly sealed: string }

export const openRow = ({ lid_hmac, sealed }: SealedRow, { sealer }: DatasetSecrets): DatasetPerson => {
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
 * Deletes everybody known by one of the identifiers, given as keyed HMACs, and names all identifiers of who was deleted:
 * more may have to be suppressed than were asked for.
 *
 * Suppressions must be committed before this is called. An import locks the table against writers, this one included,
 * before it asks who is suppressed: either it has written before, and what it wrote is deleted here, or it asks after.
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
