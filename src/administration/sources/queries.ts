import { z } from 'zod'
import { ageDaysOf, type DataSource, isTooOld } from '../../call/data-source.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { query, type Row } from '../declare.ts'
import { auditEntries } from '../event-log/audit.ts'

type LastImport = { readonly at: string; readonly actor: string }

/** The last import according to the audit; null if none is recorded, or if the rows of the audit are no longer updated. */
const lastImportOf = async (
  foundation: Pick<Foundation, 'pool' | 'eventLog'>,
  data: NonNullable<DataSource['imported']>,
): Promise<LastImport | null> => {
  const filter = { since: null, actors: null, about: data, type: 'DataImported', oldestFirst: false }
  try {
    for await (const { at, actor } of auditEntries(foundation, filter, { max: 1 })) return { at, actor }
  } catch (error) {
    if (!(error instanceof CommandRefused)) throw error
  }
  return null
}

/** A data source as a row. `remedy` is null if the data is recent enough. The age is null if there is no data. */
export const sourceJson = (source: DataSource, last: LastImport | null, nowMs: number): Row => {
  const { name, from, version, holds, asOf, ageDaysMax, place, remedy } = source
  const tooOld = isTooOld(source, nowMs)
  return {
    name,
    from,
    version,
    holds,
    place,
    as_of: asOf?.toISOString() ?? null,
    age_days: asOf === null ? null : ageDaysOf(asOf, nowMs),
    age_days_max: ageDaysMax,
    too_old: tooOld,
    imported_at: last?.at ?? null,
    imported_by: last?.actor ?? null,
    remedy: ageDaysMax === null || tooOld ? remedy : null,
  }
}

const listSources = query({
  name: 'data list',
  action: 'system.read',
  summary:
    'list the data that answers are based on, with its age; files are those of the machine that runs this query',
  input: z.object({}),
  columns: [
    { name: 'name', label: 'Data', kind: 'name' },
    { name: 'from', label: 'From', kind: 'whole' },
    { name: 'version', label: 'Version' },
    { name: 'holds', label: 'Contents' },
    { name: 'as_of', label: 'As of (UTC)', kind: 'instant' },
    { name: 'age_days', label: 'Age in days', kind: 'number' },
    { name: 'age_days_max', label: 'Maximum age', kind: 'number' },
    { name: 'too_old', label: 'Too old' },
    { name: 'imported_at', label: 'Last import (UTC)', kind: 'instant' },
    { name: 'imported_by', label: 'Imported by' },
    { name: 'remedy', label: 'Remedy', kind: 'whole' },
  ],
  run: async ({ foundation, data }) => {
    const { sources, faults } = await (await data()).sources()
    const nowMs = Date.now()
    const imports = {
      companies: await lastImportOf(foundation, 'companies'),
      profiles: await lastImportOf(foundation, 'profiles'),
    }
    const rows = [
      ...sources.map((one) => sourceJson(one, one.imported === null ? null : imports[one.imported], nowMs)),
      ...faults.map((fault) => ({ name: 'unreadable', remedy: fault })),
    ]
    return { json: rows, failed: faults.length > 0 }
  },
})

export const declarations = [listSources]
