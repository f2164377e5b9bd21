import { defineConfig } from 'vitest/config'
import { common, root } from '../vitest.config.ts'

/** The service and its command line as real processes, killed, frozen and restored: too long for every `npm test`. */
export default defineConfig({
  root,
  test: {
    ...common,
    // Those beside other tests of their subject share what they need with them.
    include: ['test/journey/**/*.test.ts', 'test/**/*.journey.test.ts'],
    isolate: false,
    // Several processes each, which mostly start, are killed and wait for each other.
    maxWorkers: 3,
  },
})
