import { randomFillSync } from 'node:crypto'
import { monotonicFactory } from 'ulid'

/** Makes the ULIDs that identify calls: strictly increasing within a process, 80 random bits at each new millisecond. */
export const createRequestIds = (): ((nowMs: number) => string) => {
  // Randomness is drawn in blocks: asking the system for every character costs more than the rest of a call's id.
  const block = new Uint8Array(4_096)
  let used = block.length
  const random = (): number => {
    if (used === block.length) {
      randomFillSync(block)
      used = 0
    }
    return (block[used++] ?? 0) / 256
  }
  return monotonicFactory(random)
}
