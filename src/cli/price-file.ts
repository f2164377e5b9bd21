import { readFile, stat } from 'node:fs/promises'
import { InputFault } from '../administration/input.ts'

/** Far above the size of a complete price book. */
const fileBytesMax = 1_000_000

/** A price book, or a part of one, as in a file. Throws `InputFault` of the field `file`. */
export const readPriceFile = async (path: string): Promise<unknown> => {
  try {
    const { size } = await stat(path)
    if (size > fileBytesMax)
      throw new RangeError(`it has ${size} bytes; a price book has at most ${fileBytesMax}`)
    return JSON.parse(await readFile(path, 'utf8'))
  } catch (error) {
    throw new InputFault(
      'file',
      `${path} cannot be read as JSON: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
}
