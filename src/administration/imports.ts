import type { Foundation } from '../foundation/foundation.ts'
import { auditEntries } from './audit.ts'

/** When data were taken in last, and by whom, as the audit tells it. */
export type LastImport = { readonly at: string; readonly actor: string }

/** Null where no import is on record. Throws `CommandRefused` where the rows of the audit stopped. */
export const lastImportOf = async (
  foundation: Pick<Foundation, 'pool' | 'eventLog'>,
  data: 'companies' | 'profiles',
): Promise<LastImport | null> => {
  const filter = { since: null, actors: null, about: data, type: 'DataImported', oldestFirst: false }
  for await (const { at, actor } of auditEntries(foundation, filter, { max: 1 })) return { at, actor }
  return null
}
