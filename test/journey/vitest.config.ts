import { defineConfig } from 'vitest/config'
import { longestFirst } from '../sequencer.ts'
import { common, root } from '../vitest.config.ts'

/** Those that take more than half a minute, the longest first. */
const long = [
  'test/journey/crash.test.ts',
  'test/journey/moving.test.ts',
  'test/journey/jobs.test.ts',
  'test/journey/secret-rotation.test.ts',
  'test/journey/several-processes.test.ts',
  'test/journey/restored-log.test.ts',
  'test/journey/rebuild-live.test.ts',
  'test/journey/embedded-postgres.test.ts',
  'test/journey/backup.test.ts',
  'test/upgrade/upgrade.journey.test.ts',
  'test/journey/rule-change.test.ts',
  'test/journey/command-line.test.ts',
  'test/tracing/export.journey.test.ts',
  'test/metrics/observe.journey.test.ts',
  'test/journey/consent.test.ts',
  'test/journey/ledger-verify.test.ts',
]

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
    sequence: { sequencer: longestFirst(root, long) },
  },
})
