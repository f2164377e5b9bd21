import { mergeConfig } from 'vitest/config'
import base from '../vitest.config.ts'

/** The service and its command line as real processes, killed, frozen and restored: too long for every `npm test`. */
export default mergeConfig(
  { ...base, test: { ...base.test, include: [], exclude: [] } },
  {
    test: {
      include: ['test/journey/**/*.test.ts'],
      exclude: ['**/node_modules/**'],
      // Several processes each: more at a time would only wait for each other.
      maxWorkers: 2,
      testTimeout: 60_000,
      hookTimeout: 90_000,
    },
  },
)
