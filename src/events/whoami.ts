import { z } from 'zod'

/** Whoami establishes nothing beyond that the key was used. */
export const whoamiFacts = z.object({ kind: z.literal('whoami') })
