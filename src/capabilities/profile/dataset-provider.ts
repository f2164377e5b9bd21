import type { Pool } from 'pg'
import type { Logger } from './http-provider-attempts.ts'
import { aliasTexts, canonicalLid } from './identifier.ts'
import { profileDataOf } from './mapping.ts'
import { fieldsOf } from './mapping-fields.ts'
import type { ProfileIds, ProfileProvider, ProviderAnswer } from './provider.ts'

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
  clock,
  logger,
}: {
  pool: Pick<Pool, 'query'>
  clock: { epochMs: () => number }
  logger: Logger
}): ProfileProvider => ({
  name: 'dataset',
  fetch: async (ref) => {
    try {
      const { rows } = await pool.query<DatasetRow>(ref.kind === 'lid' ? selectByLid : selectByUrn, [
        ref.value,
      ])
      const [row] = rows
      return row === undefined ? { kind: 'not_found' } : answerOf(row, clock.epochMs())
    } catch (error) {
      logger.error({ err: error }, 'the profile dataset cannot be read')
      return { kind: 'transient', detail: 'the dataset cannot be read' }
    }
  },
})

type DatasetRow = { readonly lid: string; readonly urn: string | null; readonly data: unknown }

const selectByLid = 'select lid, urn, data from profile_dataset where lid = $1'
const selectByUrn = 'select lid, urn, data from profile_dataset where urn = $1'

const answerOf = ({ lid, urn, data }: DatasetRow, nowMs: number): ProviderAnswer =>
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
 * Deletes everybody known by one of the aliases (`lid:…`, `urn:…`), and names all aliases of who was deleted: more may
 * have to be suppressed than were asked for.
 *
 * Suppressions must be committed before this is called. An import locks the table against writers, this one included,
 * before it asks who is suppressed: either it has written before, and what it wrote is deleted here, or it asks after.
 */
export const eraseFromDataset = async (
  pool: Pick<Pool, 'query'>,
  aliases: readonly string[],
): Promise<{ readonly removed: number; readonly aliases: readonly string[] }> => {
  const values = (prefix: string): string[] =>
    aliases.filter((alias) => alias.startsWith(prefix)).map((alias) => alias.slice(prefix.length))
  const lids = values('lid:').flatMap((lid) => canonicalLid(lid) ?? [])
  const { rows } = await pool.query<ProfileIds>(deleteRows, [lids, values('urn:')])
  return { removed: rows.length, aliases: rows.flatMap(aliasTexts) }
}

const deleteRows = 'delete from profile_dataset where lid = any($1) or urn = any($2) returning lid, urn'
