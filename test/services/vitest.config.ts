import { defineConfig } from 'vitest/config'
import { common, root } from '../vitest.config.ts'

/** Tests with servers that `npm test` does not need. The tests start these servers from PATH, and fail if a server is missing. */
export default defineConfig({
  root,
  test: { ...common, maxWorkers: 4, include: ['test/services/**/*.test.ts'] },
})
