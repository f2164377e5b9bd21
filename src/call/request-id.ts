import { randomFillSync } from 'node:crypto'
import { monotonicFactory } from 'ulid'

/**
 * Makes the ULIDs that identify calls, strictly increasing within a process, even if the clock goes back. The random bytes are fetched in blocks,
 * because fetching each byte separately takes much longer than making an id.
 */
export const createRequestIds = (): ((nowMs: number) => string) => {
  const block = new Uint8Array(4_096)
  let used = block.length
  return monotonicFactory(() => {
    if (used === block.length) {
      randomFillSync(block)
      used = 0
    }
    return (block[used++] ?? 0) / 256
  })
}
