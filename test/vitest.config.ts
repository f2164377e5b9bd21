import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

/** Lives here because the top level of the repository holds no tool's configuration it can do without. */
export default defineConfig({
  root: fileURLToPath(new URL('..', import.meta.url)),
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/bench/**', 'test/journey/**', 'test/services/**', '**/node_modules/**'],
    globalSetup: ['test/support/global-setup.ts'],
    pool: 'forks',
    // Some tests wait for time-outs; more workers would share two processor cores with the PostgreSQL that all of them use.
    maxWorkers: 4,
    testTimeout: 20_000,
    hookTimeout: 30_000,
    teardownTimeout: 60_000,
  },
})
