import { randomFillSync } from 'node:crypto'
import { encodeTime } from 'ulid'

const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
const timeCharacters = 10
const randomCharacters = 12
/** 20 bits count the ids within a millisecond, far more than a process can make. */
const counterMax = 32 ** 4

/**
 * Makes the ULIDs that identify calls, strictly increasing within a process. Each millisecond gets 60 random bits. The last 20 bits
 * count up from a random start in the lower half, so that the ids of one millisecond stay in order.
 */
export const createRequestIds = (): ((nowMs: number) => string) => {
  const block = new Uint8Array(4_096)
  let used = block.length
  let lastMs = -1
  let prefix = ''
  let counter = 0

  const random = (): number => {
    if (used === block.length) {
      randomFillSync(block)
      used = 0
    }
    return block[used++] ?? 0
  }
  const begin = (ms: number): void => {
    lastMs = ms
    prefix = encodeTime(ms, timeCharacters)
    for (let i = 0; i < randomCharacters; i++) prefix += alphabet.charAt(random() & 31)
    counter = ((random() << 16) | (random() << 8) | random()) % (counterMax / 2)
  }

  return (nowMs) => {
    // Ids must increase even if the clock goes back.
    if (nowMs > lastMs) begin(nowMs)
    else if (++counter === counterMax) begin(lastMs + 1)
    return (
      prefix +
      alphabet.charAt(counter >>> 15) +
      alphabet.charAt((counter >>> 10) & 31) +
      alphabet.charAt((counter >>> 5) & 31) +
      alphabet.charAt(counter & 31)
    )
  }
}
