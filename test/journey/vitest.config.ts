import { defineConfig } from 'vitest/config'
import { common, root } from '../vitest.config.ts'

/** The service and its command line as real processes that are killed, frozen and restored. This takes too long for every `npm test`. */
export default defineConfig({
  root,
  test: {
    ...common,
    globalSetup: [...common.globalSetup, 'test/journey/files-in-memory.ts'],
    // Journeys outside this folder share code with the other tests in their folder.
    include: ['test/journey/**/*.test.ts', 'test/**/*.journey.test.ts'],
    isolate: false,
    // Three journeys run at a time. Each has several processes, which spend most of their time waiting.
    maxWorkers: 3,
  },
})
