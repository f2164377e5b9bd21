import type { Foundation } from '../../foundation/foundation.ts'
import { auditEntries } from '../event-log/audit.ts'

/** The time and the actor of the last import, from the audit. */
export type LastImport = { readonly at: string; readonly actor: string }

/** Null if no import is recorded. Throws `CommandRefused` if the rows of the audit have stopped. */
export const lastImportOf = async (
  foundation: Pick<Foundation, 'pool' | 'eventLog'>,
  data: 'companies' | 'profiles',
): Promise<LastImport | null> => {
  const filter = { since: null, actors: null, about: data, type: 'DataImported', oldestFirst: false }
  for await (const { at, actor } of auditEntries(foundation, filter, { max: 1 })) return { at, actor }
  return null
}
