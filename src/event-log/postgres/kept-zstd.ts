import { constants, type createZstdCompress, type createZstdDecompress } from 'node:zlib'

/**
 * zstd, one whole frame at a time, by a context that is kept. `zstdDecompressSync` and `zstdCompressSync` make one for every frame and
 * load the dictionary anew, which takes several times as long as the frame of a call itself. Node.js documents no way to keep one. So
 * this calls what those two call below, and calls those two where that is not there. The frames are the same, byte by byte.
 */

/** `room`: bytes that the result may take. It is valid until the next call. Throws where the input is no frame, or the room is too small. */
export type Zstd = (input: Buffer, room: number) => Buffer

type Stream = ReturnType<typeof createZstdCompress> | ReturnType<typeof createZstdDecompress>

type Handle = {
  writeSync(
    flush: number,
    ...places: [input: Buffer, from: number, length: number, output: Buffer, at: number, room: number]
  ): void
}

type Context = {
  readonly stream: Stream
  readonly handle: Handle
  /** How much of the room, and how much of the input, the last write left. */
  readonly left: Uint32Array
}

const contextOf = (stream: Stream): Context | null => {
  const handle: unknown = Reflect.get(stream, '_handle')
  const left: unknown = Reflect.get(stream, '_writeState')
  if (!isHandle(handle) || !(left instanceof Uint32Array)) return null
  // The fault is thrown below; without a listener it would end the process as well.
  stream.on('error', () => undefined)
  return { stream, handle, left }
}

const isHandle = (value: unknown): value is Handle =>
  typeof value === 'object' && value !== null && 'writeSync' in value && typeof value.writeSync === 'function'

const outputBytesUsual = 64 * 1024

/** `once`: the documented function that does the same. */
export const keptZstd = (open: () => Stream, once: Zstd): Zstd => {
  let context: Context | null = null
  let output = Buffer.alloc(0)
  return (input, room) => {
    context ??= contextOf(open())
    if (context === null) return once(input, room)
    if (output.length < room) output = Buffer.allocUnsafe(Math.max(room, outputBytesUsual))
    const { stream, handle, left } = context
    handle.writeSync(constants.ZSTD_e_end, input, 0, input.length, output, 0, room)
    const unused = left[0] ?? 0
    if (stream.errored === null && unused > 0) return output.subarray(0, room - unused)
    // It is in the middle of this frame, and of no use for the next one.
    context = null
    stream.destroy()
    throw stream.errored ?? new RangeError(`it takes ${room} bytes or more`)
  }
}
