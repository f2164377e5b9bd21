import { randomFillSync } from 'node:crypto'
import { monotonicFactory } from 'ulid'

const pattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

export const aRequestId = 'a request id: 26 letters and digits, such as 01JB2ZQ5V7N3K2M4P6R8T0W1X2'

/** The request id in a text, in upper case; null if the text is not a request id. */
export const requestIdIn = (text: string): string | null => {
  const id = text.trim().toUpperCase()
  return pattern.test(id) ? id : null
}

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
