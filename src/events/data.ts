import { z } from 'zod'
import { instant } from './primitives.ts'

/** Records were taken in from a file: of companies, or of the people of the data set. */
export const dataImportedV1 = z.object({
  data: z.enum(['companies', 'profiles']),
  /** What answers name as the source; null where they name none. */
  source: z.string().min(1).max(200).nullable(),
  /** When the data are from; null where the file does not say. */
  as_of: instant.nullable(),
  /** Records that were new or changed what was known. */
  imported: z.int().min(0),
})
export type DataImported = z.infer<typeof dataImportedV1>
