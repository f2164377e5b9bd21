import { setTimeout as sleep } from 'node:timers/promises'

const stepMs = 20

/**
 * Settles as `work` does, and rejects if that takes longer. The time is counted in short timers, one after another, so that time in
 * which this process got no processor hardly counts.
 */
export const takesAtMost = async <Value>(ms: number, work: Promise<Value>): Promise<Value> => {
  const settled = new AbortController()
  const tooLate = async (): Promise<never> => {
    for (let passedMs = 0; passedMs < ms; passedMs += stepMs)
      await sleep(stepMs, undefined, { signal: settled.signal })
    throw new Error(`it took longer than ${ms} ms`)
  }
  try {
    return await Promise.race([work, tooLate()])
  } finally {
    settled.abort()
  }
}
