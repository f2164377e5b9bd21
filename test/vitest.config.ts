import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

/** What every suite has in common. */
export const common = {
  pool: 'forks' as const,
  globalSetup: ['test/support/global-setup.ts'],
  // These end what hangs. A machine that does other things too takes several times as long as one that is quiet.
  testTimeout: 60_000,
  hookTimeout: 60_000,
  teardownTimeout: 60_000,
  expect: { poll: { timeout: 30_000, interval: 5 } },
}

export const root = fileURLToPath(new URL('..', import.meta.url))

/** These put modules of their own in the place of Node's: nothing else may run in their process, before or after. */
const ofTheirOwnProcess = ['test/simulation/**/*.test.ts']

/** Lives here because the top level of the repository holds no tool's configuration it can do without. */
export default defineConfig({
  root,
  test: {
    // Some tests wait for time-outs; more workers would share two processor cores with the PostgreSQL that all of them use.
    maxWorkers: 4,
    projects: [
      { extends: true, test: { name: 'simulation', pool: 'forks', include: ofTheirOwnProcess } },
      {
        extends: true,
        test: {
          ...common,
          name: 'service',
          include: ['test/**/*.test.ts'],
          exclude: [
            ...ofTheirOwnProcess,
            'test/bench/**',
            'test/journey/**',
            'test/**/*.journey.test.ts',
            'test/services/**',
            '**/node_modules/**',
          ],
          // Loading the service takes longer than most files: the files of one worker share what is loaded. A file that leaves
          // anything behind fails the next one.
          isolate: false,
        },
      },
    ],
  },
})
