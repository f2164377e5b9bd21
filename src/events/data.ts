import { z } from 'zod'
import { instant } from './primitives.ts'

/** An operator imported companies or people from a file. */
export const dataImportedV1 = z.object({
  data: z.enum(['companies', 'profiles']),
  /** The source that answers name, or null if they name none. */
  source: z.string().min(1).max(200).nullable(),
  /** The date of the data; null if the file does not contain one. */
  as_of: instant.nullable(),
  /** The number of records that were new or changed. */
  imported: z.int().min(0),
})
export type DataImported = z.infer<typeof dataImportedV1>
