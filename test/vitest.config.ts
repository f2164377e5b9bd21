import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { exhaustive } from './support/exhaustive.ts'

export const root = fileURLToPath(new URL('..', import.meta.url))

// Every worker loads the whole service. Code compiled by one worker is available to the next, even in a later run.
process.env.NODE_COMPILE_CACHE ??= join(root, 'node_modules/.cache/compiled')

/** Settings shared by all suites. */
export const common = {
  pool: 'forks' as const,
  globalSetup: ['test/support/global-setup.ts'],
  // Node loads the modules, as in production. Vite would first transform each module.
  experimental: { viteModuleRunner: false },
  // With Node's default of 16 MB, collecting garbage takes more processor time.
  execArgv: ['--max-semi-space-size=64'],
  // These end tests that hang. A busy machine is several times slower than a quiet one.
  testTimeout: 180_000,
  hookTimeout: 180_000,
  teardownTimeout: 60_000,
  // The summary of a run shows only messages, so they must name the whole values.
  chaiConfig: { truncateThreshold: 2_000 },
  expect: { poll: { timeout: 60_000, interval: 5 } },
}

/**
 * Files that take long, mostly because they repeat at HTTP or database level what other tests check in parts. `.ci/run` sets EXHAUSTIVE=1 to
 * run all of them. They also run if the command line names files or folders.
 */
const long = 'test/**/*.long.test.ts'
const named = process.argv.slice(2).some((word) => /^test\/(?!vitest\.config)/.test(word))

const include = globSync('test/**/*.test.ts', {
  cwd: root,
  exclude: [
    'test/bench/**',
    'test/compose/**',
    'test/journey/**',
    'test/**/*.journey.test.ts',
    'test/services/**',
    ...(exhaustive || named ? [] : [long]),
  ],
})
/** These files must not run in a process where another file has already loaded the replaced modules. */
const replacesModules = (file: string): boolean => readFileSync(join(root, file), 'utf8').includes('vi.mock(')

/** This file is not at the top level of the repository, which holds only the configuration that tools require there. */
export default defineConfig({
  root,
  test: {
    ...common,
    globalSetup: [...common.globalSetup, 'test/support/exhaustive.ts'],
    setupFiles: ['test/support/setup.ts'],
    // Many tests wait for PostgreSQL, sockets and time-outs, so there are more workers than processor cores. Each one loads the service,
    // which takes two seconds of processor time.
    maxWorkers: 4,
    projects: [
      { extends: true, test: { name: 'replaced modules', include: include.filter(replacesModules) } },
      {
        extends: true,
        test: {
          name: 'service',
          // These files replace no modules. Without this hook, Node does not parse each test file twice.
          experimental: { ...common.experimental, nodeLoader: false },
          include: include.filter((file) => !replacesModules(file)),
          // Loading the service takes longer than most files, so the files of one worker share the loaded modules. A file that leaves
          // anything behind makes the next one fail.
          isolate: false,
        },
      },
    ],
  },
})
