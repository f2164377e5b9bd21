/** Decision 22 and 23 across processes: caps hold exactly, counted in PostgreSQL. */
import { describe } from 'vitest'
import { pixelProcesses } from './processes.ts'

describe('the pixel controls of two processes on one database', () => {
  // Five times as many where there is time for it: test/contract, and test/services over HTTP.
  pixelProcesses({ cap: 1_000, variables: async () => ({}) })
})
