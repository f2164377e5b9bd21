import type { Pool } from 'pg'
import type { EpochSealer } from '../../../guard/secrets/secrets.ts'
import { fieldsOf } from '../mapping/fields.ts'
import { profileDataOf } from '../mapping/mapping.ts'
import type { Logger } from '../sources/http-provider.ts'
import type { ProfileData, ProfileIds, ProfileSource, ProviderAnswer } from '../sources/provider.ts'

/**
 * The operator's own people, imported into PostgreSQL (`import.ts`).
 *
 * A read of the current row counts as a fresh fetch, so `observedAtMs` is the time of the read. With the import date, `cached: false` would
 * never get an answer, and `cached: true` would get one only in the first month after the import.
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
      logger.error({ err: error }, 'the profile data set cannot be read')
      return { kind: 'transient', detail: 'the data set cannot be read' }
    }
  },
})

/** Encrypts the data set, so that access to the database alone does not reveal it. */
export type DatasetSecrets = {
  readonly identifierHmac: (alias: string) => string
  readonly sealer: EpochSealer
}

/** `data` is null if the person is marked as deleted. */
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
    throw new Error(
      `a person in the data set cannot be decrypted, because the epoch key ${sealed.split('.')[0]} no longer exists`,
    )
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
 * Deletes everyone known by one of the identifiers (keyed HMACs), and returns all identifiers of these people, because all must be
 * suppressed.
 *
 * Suppressions must be committed before this call. An import locks the table before it reads the suppressions. It has therefore either
 * written rows that are deleted here, or reads the suppressions.
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
