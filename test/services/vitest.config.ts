import { mergeConfig } from 'vitest/config'
import base from '../vitest.config.ts'

/** Tests against servers that `npm test` does without. They start them from PATH, and fail where there are none. */
export default mergeConfig(
  { ...base, test: { ...base.test, include: [], exclude: [] } },
  { test: { include: ['test/services/**/*.test.ts'], exclude: ['**/node_modules/**'] } },
)
