/**
 * One MaxMind DB file, read whole and checked before anything trusts it.
 *
 * mmdb-lib constructs a reader over most damaged files without complaint and then answers wrongly, so a file is
 * refused unless its metadata, every node of its tree, its data section and a thousand sampled records are sound.
 * The checks give the event loop a turn every few milliseconds, because a reload runs while requests are served.
 */
import { readFile, stat } from 'node:fs/promises'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Reader, type Response } from 'maxmind'
import { formatIPv6, type LookupAddress, parseAddress, parseIPv4, parseIPv6 } from '../../egress/address.ts'
import { ipv6Allocated } from '../../egress/iana.ts'
import { type RecordShape, recordShape, toLocation } from './location.ts'
import { type AddressTree, openTree, treeFault } from './mmdb-tree.ts'

/** A file that passed its checks, in memory. */
export type GeoFile = {
  path: string
  /** What the file was on disk when it was read; see `signatureOf`. */
  signature: string
  sizeBytes: number
  reader: Reader<Response>
  tree: AddressTree
  /** The families its tree has records for at addresses that are answered. */
  families: (4 | 6)[]
  /** The families its tree has records for, but at no address that is answered: private and reserved ones only. */
  silent: (4 | 6)[]
  shape: RecordShape
  /** Milliseconds since the epoch. */
  buildMs: number
  databaseType: string
}

/** Values mmdb-lib keeps decoded between records, mostly texts that many records share. */
const decodedValuesMax = 10_000
/** Nodes checked before the event loop gets a turn: about a millisecond. */
const nodesPerSlice = 65_536
const samplesMax = 1_000
const samplesPerSlice = 50
/** Samples in private or reserved space are dropped; the bound keeps a file of nothing else from looping. */
const sampleAttemptsMax = 5_000
/** Fewer than one country in ten records means it is a file of something else, such as networks by AS number. */
const locatedShareMin = 0.1
/** Build dates come from other clocks. */
const futureMaxMs = 2 * 86_400_000
/** No value in a location record is this many zero bytes; a hole in a file is. */
const holeBytes = 64
const metadataMarker = Buffer.from('\xab\xcd\xefMaxMind.com', 'latin1')

/** What an operator can do about any refused file. */
export const remedy =
  'Set GEOIP_CITY_DB to a readable, complete MaxMind DB file (.mmdb) with city or country records, ' +
  'or unset it to use the bundled DB-IP copy.'

/**
 * Reads and checks a file. `now` is in milliseconds since the epoch.
 * @throws Error naming the path, the fault and the remedy.
 */
export const openGeoFile = async (path: string, now: number): Promise<GeoFile> => {
  try {
    const signature = await signatureOf(path)
    const bytes = await readFile(path)
    if ((await signatureOf(path)) !== signature) throw new Error('it changed while it was read')
    return await checkedFile({ path, signature, bytes, now })
  } catch (error) {
    throw new Error(`The geo database ${path} cannot be used: ${sentenceOf(error)}. ${remedy}`, {
      cause: error,
    })
  }
}

const checkedFile = async (read: {
  path: string
  signature: string
  bytes: Buffer
  now: number
}): Promise<GeoFile> => {
  const { path, signature, bytes, now } = read
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) throw new Error('it is gzip-compressed; decompress it first')
  const reader = new Reader<Response>(bytes, { cache: new DecodedValues() })
  const { metadata } = reader
  const buildMs = metadata.buildEpoch.getTime()
  if (metadata.binaryFormatMajorVersion !== 2) throw new Error('its format version is not 2')
  if (metadata.ipVersion !== 4 && metadata.ipVersion !== 6) throw new Error('its ip_version is not 4 or 6')
  if (!Number.isSafeInteger(metadata.nodeCount) || metadata.nodeCount < 1) throw new Error('it has no tree')
  if (!(buildMs > 0 && buildMs < now + futureMaxMs))
    throw new Error('its build date is missing or ahead of us')
  await checkSections(bytes, metadata)
  const tree = openTree(bytes, metadata)
  await nextTurn()

  const loaded = { path, signature, reader, tree, buildMs, databaseType: String(metadata.databaseType) }
  const shapes: RecordShape[] = []
  const families: (4 | 6)[] = []
  const silent: (4 | 6)[] = []
  let records = 0
  for (const family of [4, 6] as const) {
    if (family === 6 && metadata.ipVersion === 4) continue
    if (!startsOf(family).some(({ words, from }) => tree.reaches(words, from))) continue
    const samples = await sampleRecords(loaded, family)
    if (samples.records > 0) families.push(family)
    else silent.push(family)
    records += samples.records
    shapes.push(...samples.shapes)
  }
  const [shape] = shapes
  if (shape === undefined || shapes.length < records * locatedShareMin) {
    throw new Error(`it holds no countries (database type "${loaded.databaseType}")`)
  }
  return { ...loaded, families, silent, shape, sizeBytes: bytes.length }
}

/** Every node of the tree, and the data section for holes. */
const checkSections = async (bytes: Buffer, metadata: Reader<Response>['metadata']): Promise<void> => {
  const dataEnd = bytes.lastIndexOf(metadataMarker)
  const dataStart = metadata.searchTreeSize + 16
  if (dataEnd < dataStart) throw new Error('it ends before its data section')
  if (bytes.subarray(metadata.searchTreeSize, dataStart).some((byte) => byte !== 0)) {
    throw new Error('its tree does not end where its metadata says')
  }
  for (let from = 0; from < metadata.nodeCount; from += nodesPerSlice) {
    const to = Math.min(from + nodesPerSlice, metadata.nodeCount)
    const fault = treeFault(bytes, metadata, { from, to, dataEnd })
    if (fault !== null) throw new Error(`its tree is damaged: ${fault}`)
    await nextTurn()
  }
  const hole = bytes.subarray(dataStart, dataEnd).indexOf(Buffer.alloc(holeBytes))
  if (hole >= 0) throw new Error(`its data section has a hole at byte ${dataStart + hole}`)
  await nextTurn()
}

/** Decodes sampled records of one family. @throws Error when any of them cannot be decoded. */
const sampleRecords = async (
  file: Pick<GeoFile, 'reader' | 'tree'>,
  family: 4 | 6,
): Promise<{ records: number; shapes: RecordShape[] }> => {
  const shapes: RecordShape[] = []
  const addresses = await sampleAddresses(file.tree, family)
  for (const [index, address] of addresses.entries()) {
    if (index % samplesPerSlice === 0) await nextTurn()
    const record = file.reader.get(address.text)
    toLocation(record)
    const shape = recordShape(record)
    if (shape !== null) shapes.push(shape)
  }
  return { records: addresses.length, shapes }
}

/**
 * The pointer of an address's record, 0 when it has none. Parsed for the family that was asked: text of the other
 * family finds nothing instead of a wrong record.
 */
export const findPointer = (tree: AddressTree, address: LookupAddress): number => {
  if (address.family === 6) return parseIPv6(address.text, words) ? tree.findIPv6(words) : 0
  const bits = parseIPv4(address.text, 0)
  return bits < 0 ? 0 : tree.findIPv4(bits)
}

/** Reused by every IPv6 lookup, which never awaits. */
const words = new Uint16Array(8)

/** mmdb-lib's cache of decoded values: it makes a file of nested pointers cost its size, not its unfolding. */
class DecodedValues {
  values = new Map<string | number, unknown>()

  get(offset: string | number): unknown {
    return this.values.get(offset)
  }

  set(offset: string | number, value: unknown): void {
    if (this.values.size >= decodedValuesMax) this.values.clear()
    this.values.set(offset, value)
  }
}

/**
 * Up to 1,000 addresses that have a record and may be answered, the same ones for the same tree. IPv6 starts from
 * a random allocated block, because some files cover far more unallocated space than allocated.
 */
export const sampleAddresses = async (tree: AddressTree, family: 4 | 6): Promise<LookupAddress[]> => {
  const random = seededRandom(family)
  const starts = startsOf(family).filter(({ words, from }) => tree.reaches(words, from))
  const addresses: LookupAddress[] = []
  for (let attempt = 1; attempt <= sampleAttemptsMax && addresses.length < samplesMax; attempt++) {
    if (attempt % samplesPerSlice === 0) await nextTurn()
    const start = starts[Math.floor(random() * starts.length)]
    if (start === undefined) break
    const address = start.words.slice()
    if (!tree.descend(address, start.from, random)) continue
    const parsed = parseAddress(textOfWords(address))
    if (parsed?.reachable && parsed.lookup.family === family) addresses.push(parsed.lookup)
  }
  return addresses
}

/** Where samples start: the root for IPv4, each allocated block for IPv6, as leading words and their bits. */
const startsOf = (family: 4 | 6): { words: Uint16Array; from: number }[] => {
  if (family === 4) return [{ words: new Uint16Array(2), from: 0 }]
  return ipv6Allocated.map((block) => {
    const [address = '', length = ''] = block.split('/')
    const words = new Uint16Array(8)
    parseIPv6(address, words)
    return { words, from: Number(length) }
  })
}

const textOfWords = (address: Uint16Array): string => {
  if (address.length === 8) return formatIPv6(address)
  return [...address].flatMap((word) => [word >>> 8, word & 255]).join('.')
}

/** Mulberry32. Seeded, so a file is judged by the same addresses every time. */
const seededRandom = (seed: number): (() => number) => {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** What the file is on disk right now; a text no file can have when it is not there. */
export const signatureOf = async (path: string): Promise<string> => {
  try {
    const { mtimeMs, ctimeMs, size, ino } = await stat(path)
    return [mtimeMs, ctimeMs, size, ino].join(':')
  } catch {
    return 'absent'
  }
}

/** The sentence of anything thrown. */
export const sentenceOf = (error: unknown): string => {
  return error instanceof Error ? error.message : String(error)
}
