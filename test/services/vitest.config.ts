import { defineConfig } from 'vitest/config'
import { common, root } from '../vitest.config.ts'

/** Tests against servers that `npm test` does without. They start them from PATH, and fail where there are none. */
export default defineConfig({
  root,
  test: { ...common, maxWorkers: 4, include: ['test/services/**/*.test.ts'] },
})
