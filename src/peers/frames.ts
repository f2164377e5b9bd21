/**
 * How bytes between two processes are cut: a version byte, the length of what follows (32 bits, big-endian), and that
 * many bytes of JSON in UTF-8. The JSON is an array that begins with its kind (`connection.ts` says which there are).
 */

const frameVersion = 1
const headerBytes = 5

/** What an asker sends in one frame, in bytes after the header. */
export const questionFrameBytesMax = 1_048_576
/** What an answerer sends in one frame: the answer to a repeated call holds all of the first one. */
export const answerFrameBytesMax = 4_194_304

/** A reader keeps memory of this size for the next frame, and gives back more. */
const keptBytesMax = 65_536
const noBytes = Buffer.alloc(0)

/** `textBytes` is the length of the text in UTF-8. */
export const frameOf = (text: string, textBytes: number): Buffer => {
  const frame = Buffer.allocUnsafe(headerBytes + textBytes)
  frame[0] = frameVersion
  frame.writeUInt32BE(textBytes, 1)
  frame.write(text, headerBytes, 'utf8')
  return frame
}

type FrameReaderOptions = {
  /** A frame that announces more bytes is a fault, found before any of them are kept. */
  readonly bytesMax: number
  /** Called for each frame as soon as it is complete. False: stop here, and drop what follows. */
  readonly onText: (text: string) => boolean
}

/** Takes bytes as they come, and says what is wrong with them; after that it must get no more. Null: nothing. */
type FrameReader = (chunk: Buffer) => string | null

/** Holds at most one frame, and no more memory than twice what has come of it. */
export const createFrameReader = ({ bytesMax, onText }: FrameReaderOptions): FrameReader => {
  let held = noBytes
  let heldBytes = 0

  /** Copies what the frame at the beginning of `held` still lacks, as far as the chunk goes. */
  const hold = (chunk: Buffer, from: number, neededBytes: number): number => {
    const to = Math.min(chunk.length, from + neededBytes - heldBytes)
    const bytes = heldBytes + to - from
    if (bytes > held.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(bytes, Math.min(neededBytes, bytes * 2)))
      held.copy(larger, 0, 0, heldBytes)
      held = larger
    }
    chunk.copy(held, heldBytes, from, to)
    heldBytes = bytes
    return to
  }

  const release = (): void => {
    heldBytes = 0
    if (held.length > keptBytesMax) held = noBytes
  }

  return (chunk) => {
    let at = 0
    while (at < chunk.length) {
      const isWhole = heldBytes === 0 && chunk.length - at >= headerBytes
      if (!isWhole && heldBytes < headerBytes) at = hold(chunk, at, headerBytes)
      if (!isWhole && heldBytes < headerBytes) return null
      const header = isWhole ? chunk : held
      const start = isWhole ? at : 0
      if (header[start] !== frameVersion) return `a frame of version ${header[start]}`
      const textBytes = header.readUInt32BE(start + 1)
      if (textBytes > bytesMax) return `a frame of ${textBytes} bytes`
      const end = start + headerBytes + textBytes
      if (isWhole && end <= chunk.length) {
        at = end
        if (!onText(chunk.toString('utf8', start + headerBytes, end))) return null
        continue
      }
      at = hold(chunk, at, headerBytes + textBytes)
      if (heldBytes < headerBytes + textBytes) return null
      const text = held.toString('utf8', headerBytes, heldBytes)
      release()
      if (!onText(text)) return null
    }
    return null
  }
}
