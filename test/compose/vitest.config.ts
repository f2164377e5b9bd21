import { defineConfig } from 'vitest/config'
import { common, root } from '../vitest.config.ts'

/** Tests of docker-compose.yml on a Docker engine that `test/compose/run` prepares. They share one engine, so files run one at a time. */
export default defineConfig({
  root,
  test: {
    ...common,
    include: ['test/compose/**/*.test.ts'],
    globalSetup: ['test/compose/engine.ts'],
    fileParallelism: false,
    hookTimeout: 300_000,
  },
})
