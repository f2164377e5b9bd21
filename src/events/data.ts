import { z } from 'zod'
import { instant } from './primitives.ts'

/** Companies or people were imported from a file. */
export const dataImportedV1 = z.object({
  data: z.enum(['companies', 'profiles']),
  /** The source that is named in answers; null: answers name no source. */
  source: z.string().min(1).max(200).nullable(),
  /** The date of the data; null if the file does not contain one. */
  as_of: instant.nullable(),
  /** Records that were new or changed. */
  imported: z.int().min(0),
})
export type DataImported = z.infer<typeof dataImportedV1>
