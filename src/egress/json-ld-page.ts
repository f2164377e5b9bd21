/** Finds the JSON-LD of one page. `json-ld.ts` runs this in a separate thread with a time limit. */
import { Parser } from 'htmlparser2'
import { jsonLdLimits, type PageRead, type PageToRead } from './json-ld.ts'
import { isJsonObject, type JsonObject } from './json-ld-nodes.ts'

type PageReader = (nodes: readonly JsonObject[]) => unknown

/** The part of a page that is searched for `<meta charset>`, as in a browser (HTML Standard §13.2.3.2). */
const charsetWithinBytes = 1_024
/** After this many characters, parsing is interrupted to check whether enough blocks were found. */
const writeCharacters = 64 * 1024

/** Calls the reader with the nodes of the page. If the reader throws, the page is malformed. */
export const readPage = (page: PageToRead, reader: PageReader): PageRead => {
  try {
    return read(page, reader)
  } catch {
    return { kind: 'malformed' }
  }
}

const read = ({ html, charset }: PageToRead, reader: PageReader): PageRead => {
  const blocks = blocksOf(decoded(html, charset))
  if (blocks.length === 0) return { kind: 'none' }
  const nodes: JsonObject[] = []
  let charactersLeft: number = jsonLdLimits.blockCharactersMax
  for (const block of blocks) {
    if (block.length > charactersLeft) continue
    charactersLeft -= block.length
    const value = parsed(block)
    if (value !== undefined && depthWithin(value, jsonLdLimits.depthMax)) unroll(value, nodes)
  }
  return nodes.length === 0 ? { kind: 'malformed' } : { kind: 'found', answer: reader(nodes) }
}

/** Replaces malformed bytes with U+FFFD. */
const decoded = (html: Uint8Array, charset: string | null): string => {
  const head = Buffer.from(html.buffer, html.byteOffset, Math.min(html.length, charsetWithinBytes))
  const declared = /<meta\b[^<>]*?\bcharset\s*=\s*(?:["']\s*)?([A-Za-z0-9_:.-]{1,40})/i.exec(
    head.toString('latin1'),
  )
  for (const label of [charset, declared?.[1], 'utf-8']) {
    if (label === null || label === undefined) continue
    try {
      return new TextDecoder(label).decode(html)
    } catch {
      // The charset is unknown, so the next charset is tried.
    }
  }
  return ''
}

/** Returns the text of the first JSON-LD blocks. Ignores a block without an end tag, because the page can be truncated there. */
const blocksOf = (html: string): string[] => {
  const blocks: string[] = []
  let pieces: string[] | null = null
  const parser = new Parser(
    {
      onopentag: (name, { type = '' }) => {
        pieces = name === 'script' && /^\s*application\/ld\+json\s*(;|$)/i.test(type) ? [] : null
      },
      ontext: (text) => {
        pieces?.push(text)
      },
      onclosetag: (name, implied) => {
        if (name !== 'script' || pieces === null) return
        if (!implied && blocks.length < jsonLdLimits.blocksMax) blocks.push(pieces.join(''))
        pieces = null
      },
    },
    { decodeEntities: false },
  )
  for (let at = 0; at < html.length && blocks.length < jsonLdLimits.blocksMax; at += writeCharacters)
    parser.write(html.slice(at, at + writeCharacters))
  parser.end()
  return blocks
}

const bounded = (_name: string, value: unknown): unknown =>
  typeof value === 'string' ? value.slice(0, jsonLdLimits.textCharactersMax) : value

/** Returns undefined if the block is not JSON. Accepts two common errors: CDATA marks, and unescaped line breaks in strings. */
const parsed = (block: string): unknown => {
  const text = withoutCdata(block.trim())
  for (const candidate of [text, text.replaceAll(/\p{Cc}/gu, ' ')]) {
    try {
      return JSON.parse(candidate, bounded)
    } catch {
      // Parsed again below, without control characters.
    }
  }
  return undefined
}

/** Removes `<![CDATA[` … `]]>`, even in comments. */
const withoutCdata = (text: string): string => {
  const opening = /^(\/\/|\/\*)?\s{0,9}<!\[CDATA\[\s{0,9}(\*\/)?/.exec(text)?.[0]
  const end = text.lastIndexOf(']]>')
  if (opening === undefined || end < 0) return text
  const inside = text.slice(opening.length, end).trimEnd()
  return inside.endsWith('//') || inside.endsWith('/*') ? inside.slice(0, -2) : inside
}

/** Works level by level, because a value can be nested too deeply for recursion. */
const depthWithin = (value: unknown, depthMax: number): boolean => {
  let level: unknown[] = [value]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > depthMax) return false
    level = level
      .filter((one) => typeof one === 'object' && one !== null)
      .flatMap((one) => Object.values(one ?? {}))
  }
  return true
}

const unroll = (value: unknown, nodes: JsonObject[]): void => {
  if (Array.isArray(value)) for (const one of value) unroll(one, nodes)
  if (!isJsonObject(value) || nodes.length >= jsonLdLimits.nodesMax) return
  const graph = value['@graph']
  if (graph === undefined) nodes.push(value)
  else unroll(graph, nodes)
}
