const lineFeed = 0x0a

/** `number` starts at 1. `bytes` does not include the line feed; null if the line was too long and was skipped. */
type Line = { readonly number: number; readonly bytes: Buffer | null }

/** Splits a stream into lines, and yields the lines completed by each chunk. Needs memory for one line and one chunk. */
export async function* linesOf(
  stream: AsyncIterable<Uint8Array>,
  lineBytesMax: number,
): AsyncGenerator<readonly Line[]> {
  let number = 1
  let pieces: Uint8Array[] = []
  let length = 0
  const take = (piece: Uint8Array): void => {
    length += piece.length
    if (length > lineBytesMax) pieces = []
    else if (piece.length > 0) pieces.push(piece)
  }
  const end = (): Line => {
    const bytes = length > lineBytesMax ? null : Buffer.concat(pieces)
    pieces = []
    length = 0
    return { number: number++, bytes }
  }
  for await (const chunk of stream) {
    const lines: Line[] = []
    let from = 0
    for (let at = chunk.indexOf(lineFeed); at >= 0; at = chunk.indexOf(lineFeed, from)) {
      take(chunk.subarray(from, at))
      lines.push(end())
      from = at + 1
    }
    take(chunk.subarray(from))
    yield lines
  }
  if (length > 0) yield [end()]
}

/** The decoder also removes a byte order mark. */
const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Returns the JSON value of a line; undefined for a blank line. */
export const jsonOf = (
  bytes: Buffer,
): { readonly value: unknown } | { readonly fault: 'not_utf8' | 'not_json' } | undefined => {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    return { fault: 'not_utf8' }
  }
  if (text.trim() === '') return undefined
  try {
    return { value: JSON.parse(text) }
  } catch {
    return { fault: 'not_json' }
  }
}
