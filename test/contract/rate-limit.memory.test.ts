import { describe, vi } from 'vitest'
import { createRateLimiter } from '../../src/guard/limits/rate-limit.ts'
import { rateLimitContract } from './rate-limit.ts'

describe('rate limits in memory', () => {
  rateLimitContract(async () => {
    vi.useFakeTimers({ now: Date.UTC(2026, 8, 14) })
    return {
      limiter: createRateLimiter(),
      advance: async (ms) => void vi.advanceTimersByTime(ms),
      close: async () => void vi.useRealTimers(),
    }
  })
})
