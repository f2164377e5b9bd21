import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { longestFirst } from './sequencer.ts'

/** What every suite has in common. */
export const common = {
  pool: 'forks' as const,
  globalSetup: ['test/support/global-setup.ts'],
  // These end what hangs. A machine that does other things too takes several times as long as one that is quiet.
  testTimeout: 180_000,
  hookTimeout: 180_000,
  teardownTimeout: 60_000,
  expect: { poll: { timeout: 30_000, interval: 5 } },
}

export const root = fileURLToPath(new URL('..', import.meta.url))

/** Those that take more than some seconds, the longest first. */
const long = [
  'test/simulation/ledger.simulation.test.ts',
  'test/contract/event-log.eventstoredb.test.ts',
  'test/projections/projector.test.ts',
  'test/projections/rebuild.test.ts',
  'test/projections/switch.test.ts',
  'test/event-log/verify/verify-log.test.ts',
  'test/email-validation/company-import.test.ts',
  'test/administration/backup.test.ts',
  'test/egress/json-ld.test.ts',
  'test/metrics/health.test.ts',
  'test/spec/profile.test.ts',
  'test/event-log/tree/checkpoints.test.ts',
  'test/administration/audit.test.ts',
  'test/call/waiting.test.ts',
  'test/contract/event-log.postgres.test.ts',
  'test/spec/keys-away.test.ts',
  'test/webhooks/service.test.ts',
  'test/dashboard/session.test.ts',
  'test/profile/erased-for-good.test.ts',
  'test/call/unpriced.test.ts',
  'test/projections/profile-cache.test.ts',
  'test/email-validation/syntax-grammar.test.ts',
  'test/ledger/protocol.eventstoredb.test.ts',
  'test/spec/read-only-database.test.ts',
  'test/call/openapi.test.ts',
  'test/spec/rate-limits.test.ts',
  'test/spec/email-validation-billing.test.ts',
  'test/call/slow-requests.test.ts',
]

/** These put modules of their own in the place of Node's: nothing else may run in their process, before or after. */
const ofTheirOwnProcess = ['test/simulation/**/*.test.ts']

/** These replace modules of ours: what another file has loaded before would stay. */
const withReplacedModules = ['test/webhooks/service.test.ts']

/** Lives here because the top level of the repository holds no tool's configuration it can do without. */
export default defineConfig({
  root,
  test: {
    // Most tests wait for PostgreSQL, sockets and time-outs. More workers than this would wait for two processor cores instead.
    maxWorkers: 6,
    sequence: { sequencer: longestFirst(root, long) },
    projects: [
      { extends: true, test: { name: 'simulation', pool: 'forks', include: ofTheirOwnProcess } },
      { extends: true, test: { ...common, name: 'replaced modules', include: withReplacedModules } },
      {
        extends: true,
        test: {
          ...common,
          name: 'service',
          setupFiles: ['test/support/setup.ts'],
          include: ['test/**/*.test.ts'],
          exclude: [
            ...ofTheirOwnProcess,
            ...withReplacedModules,
            'test/bench/**',
            'test/compose/**',
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
