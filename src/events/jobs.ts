import { z } from 'zod'
import { uuid } from './primitives.ts'

const job = z.string().min(1).max(64)

/** An operator started a job. `run_id` is its id in the queue. */
export const jobRequestedV1 = z.object({ job, run_id: uuid })

/** An operator retried failed runs; `runs` counts them by job. */
export const deadLettersRetriedV1 = z.object({
  runs: z
    .array(z.object({ job, runs: z.int().positive() }))
    .min(1)
    .max(200),
})
