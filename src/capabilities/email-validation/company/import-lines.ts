/**
 * Splits a file of any size into records: one JSON text or CSV record at a time, in constant memory, each with its line
 * number. A broken record is an item too, and never affects the records after it.
 *
 * We parse CSV ourselves because the editions in circulation escape quotes in two ways, by doubling them (RFC 4180) and by a
 * backslash, because a broken record must not swallow the file, and because the bytes of each record must be checked.
 */
import { isUtf8 } from 'node:buffer'

export type CompanyFormat = 'jsonl' | 'csv'

export type RecordFault =
  | 'line_too_long'
  | 'not_utf8'
  | 'not_json'
  /** A CSV record with more or fewer fields than the header. */
  | 'field_count'
  /** A quote that is never closed, or has something after it. */
  | 'quoting'

type FileRecord = { readonly line: number } & ({ readonly raw: unknown } | { readonly fault: RecordFault })

/** Bytes of a JSON line, and of a CSV record. The longest record in circulation has about 1 KiB. */
const recordBytesMax = 64 * 1024
/** Lines one CSV record may span: beyond that, the quote counts as never closed. */
const csvRecordLinesMax = 32
const lineFeed = 0x0a
const carriageReturn = 0x0d

/** Null: longer than a record may be; its bytes were dropped. */
type Line = Buffer | null

/** Splits bytes into lines, without their line ends. Holds no more than one line besides the chunk. */
export const createLineSplitter = (): { push(chunk: Buffer): Line[]; end(): Line[] } => {
  let pieces: Buffer[] = []
  let bytes = 0
  let tooLong = false
  const keep = (piece: Buffer): void => {
    bytes += piece.length
    // One more for the carriage return that may end it.
    if (bytes > recordBytesMax + 1) {
      tooLong = true
      pieces = []
    } else if (piece.length > 0) pieces.push(piece)
  }
  const take = (): Line => {
    const whole = pieces.length === 1 ? (pieces[0] ?? null) : Buffer.concat(pieces)
    const line = whole?.at(-1) === carriageReturn ? whole.subarray(0, -1) : whole
    const taken = tooLong || line === null || line.length > recordBytesMax ? null : line
    pieces = []
    bytes = 0
    tooLong = false
    return taken
  }
  return {
    push: (chunk) => {
      const lines: Line[] = []
      let from = 0
      for (let at = chunk.indexOf(lineFeed); at >= 0; at = chunk.indexOf(lineFeed, from)) {
        keep(chunk.subarray(from, at))
        lines.push(take())
        from = at + 1
      }
      keep(chunk.subarray(from))
      return lines
    },
    end: () => (bytes === 0 ? [] : [take()]),
  }
}

/** Turns lines into records. `push` returns those that are complete; a CSV record may wait for its last line. */
export type RecordReader = { push(line: Line): FileRecord[]; end(): FileRecord[] }

/** One JSON text per line. Empty lines are skipped. */
export const createJsonLinesReader = (): RecordReader => {
  let number = 0
  return {
    push: (bytes) => {
      number++
      const text = textOfLine(bytes, number)
      if (typeof text !== 'string') return [{ line: number, fault: text.fault }]
      if (text.trim() === '') return []
      try {
        return [{ line: number, raw: JSON.parse(text) }]
      } catch {
        return [{ line: number, fault: 'not_json' }]
      }
    },
    end: () => [],
  }
}

const textOfLine = (bytes: Line, number: number): string | { readonly fault: RecordFault } => {
  if (bytes === null) return { fault: 'line_too_long' }
  if (!isUtf8(bytes)) return { fault: 'not_utf8' }
  const text = bytes.toString('utf8')
  return number === 1 && text.startsWith('\ufeff') ? text.slice(1) : text
}

/** The file is not a CSV of companies: no column of its header leads to a domain. Nothing in it can be imported. */
class UnknownHeader extends Error {
  override name = 'UnknownHeader'
}

/**
 * CSV with a header and comma-separated fields. `isHeader` checks the header's fields; if it rejects them,
 * `push` throws UnknownHeader.
 *
 * A broken record is reported as a fault at its first line, and reading resumes at the line after that.
 */
export const createCsvReader = (isHeader: (fields: readonly string[]) => boolean): RecordReader => {
  let number = 0
  let header: readonly string[] | null = null
  /** Lines of a record whose quotes are open, the first one at `openedAt`. */
  let open: string[] = []
  let openedAt = 0

  const recordOf = (fields: readonly string[], line: number): FileRecord => {
    if (fields.length !== header?.length) return { line, fault: 'field_count' }
    return { line, raw: Object.fromEntries(header.map((name, i) => [name, fields[i]])) }
  }

  const takeHeader = (fields: readonly string[] | 'open' | 'broken'): FileRecord[] => {
    if (typeof fields === 'string' || !isHeader(fields))
      throw new UnknownHeader(
        'the first line is not a header with a "website" or "domain" column, separated by commas',
      )
    header = fields
    return []
  }

  const take = (text: string, line: number): FileRecord[] => {
    if (open.length === 0 && text.trim() === '') return []
    if (open.length === 0) openedAt = line
    open.push(text)
    const fields = csvFields(open.join('\n'))
    if (header === null) {
      open = []
      return takeHeader(fields)
    }
    if (fields === 'open') {
      const bytes = open.reduce((sum, one) => sum + Buffer.byteLength(one) + 1, 0)
      return open.length >= csvRecordLinesMax || bytes > recordBytesMax ? giveUp() : []
    }
    if (fields === 'broken') return giveUp()
    open = []
    return [recordOf(fields, openedAt)]
  }

  /** The open record is broken: its first line is a fault, the others are read again. */
  const giveUp = (): FileRecord[] => {
    const [lines, first] = [open.slice(1), openedAt]
    open = []
    const found: FileRecord[] = [{ line: first, fault: 'quoting' }]
    for (const [i, text] of lines.entries()) found.push(...take(text, first + 1 + i))
    return found
  }

  return {
    push: (bytes) => {
      number++
      const text = textOfLine(bytes, number)
      if (typeof text === 'string') return take(text, number)
      const broken = open.length > 0 ? giveUp() : []
      return [...broken, { line: number, fault: text.fault }]
    },
    end: () => {
      const found: FileRecord[] = []
      // Each turn takes at least one line away.
      while (open.length > 0) found.push(...giveUp())
      return found
    },
  }
}

/**
 * The fields of a record; `open` if a quote is still open, `broken` if text follows a closing quote. Within quotes both
 * `""` and `\"` mean a quote and `\\` a backslash. The two ways of escaping disagree only on a backslash before
 * the quote that ends a field: it counts as an escape, unless the record would then never end.
 */
const csvFields = (text: string): string[] | 'open' | 'broken' => {
  if (!text.includes('"')) return text.split(',')
  const escaped = csvFieldsWith(text, true)
  if (typeof escaped !== 'string' || !text.includes('\\"')) return escaped
  const plain = csvFieldsWith(text, false)
  return typeof plain === 'string' ? escaped : plain
}

const csvFieldsWith = (text: string, backslashes: boolean): string[] | 'open' | 'broken' => {
  const fields: string[] = []
  let at = 0
  for (;;) {
    if (text[at] !== '"') {
      const comma = text.indexOf(',', at)
      fields.push(text.slice(at, comma < 0 ? undefined : comma))
      if (comma < 0) return fields
      at = comma + 1
      continue
    }
    const quoted = quotedField(text, at + 1, backslashes)
    if (quoted === null) return 'open'
    fields.push(quoted.value)
    if (quoted.end === text.length) return fields
    if (text[quoted.end] !== ',') return 'broken'
    at = quoted.end + 1
  }
}

/** Reads from after the opening quote; null if there is no closing quote. `end` is after the closing quote. */
const quotedField = (
  text: string,
  from: number,
  backslashes: boolean,
): { readonly value: string; readonly end: number } | null => {
  let value = ''
  let copied = from
  for (let at = from; at < text.length; at++) {
    const [one, next] = [text[at], text[at + 1]]
    const escapes = backslashes && one === '\\' && (next === '"' || next === '\\')
    if (escapes || (one === '"' && next === '"')) {
      value += text.slice(copied, at) + next
      copied = at + 2
      at++
    } else if (one === '"') return { value: value + text.slice(copied, at), end: at + 1 }
  }
  return null
}
