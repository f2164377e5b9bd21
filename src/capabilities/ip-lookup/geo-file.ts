/**
 * One MaxMind DB file, read completely and checked before use.
 *
 * mmdb-lib opens most damaged files without an error and then returns wrong answers. So a file is refused unless its metadata, its
 * sections and a thousand sampled records are intact. The checks yield to the event loop every few milliseconds, because a reload
 * runs while requests are served.
 */
import { readFile, stat } from 'node:fs/promises'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Reader, type Response } from 'maxmind'
import { type LookupAddress, parseAddress } from '../../egress/address.ts'
import { ipv6Allocated } from '../../egress/iana.ts'
import { type RecordShape, recordShape, toLocation } from './location.ts'

export type GeoFile = {
  path: string
  /** The file's state on disk when it was read (see `signatureOf`). */
  signature: string
  sizeBytes: number
  reader: Reader<Response>
  /** The families with records for public addresses. */
  families: (4 | 6)[]
  /** The families with records only for private and reserved addresses, which are not looked up. */
  silent: (4 | 6)[]
  shape: RecordShape
  buildMs: number
  databaseType: string
}

/** The maximum number of decoded values in the cache of mmdb-lib: records, and strings that many records share. A full cache is emptied. */
const decodedValuesMax = 100_000
const samplesMax = 1_000
const samplesPerSlice = 50
/** The number of bytes searched for holes in a slice. Bytes that were never read before can take a few milliseconds per megabyte. */
const searchedPerSlice = 1024 * 1024
/** The maximum number of attempts. Samples in private or reserved space are dropped, and a file can have no other addresses. */
const sampleAttemptsMax = 5_000
/** The maximum number of empty branches that the search for one sample visits. */
const barrenMax = 4_096
/**
 * The minimum share of samples with a country. Below it, the file is not a location file. It may contain networks by AS number, for example.
 */
const locatedShareMin = 0.1
/** The maximum time by which a build date can be ahead of our clock. */
const futureMaxMs = 2 * 86_400_000
/**
 * The number of zero bytes that count as a hole in the file. No location record contains so many, and no node of the tree points to the root.
 */
const holeBytes = { data: 64, tree: 8 } as const
const metadataMarker = Buffer.from('\xab\xcd\xefMaxMind.com', 'latin1')

export const remedy =
  'Set GEOIP_CITY_DB to a readable, complete MaxMind DB file (.mmdb) with city or country records, ' +
  'or unset it to use the bundled DB-IP copy.'

/**
 * Reads and checks a file. `now` is in milliseconds since the epoch.
 * @throws Error with the path, the fault and the remedy.
 */
export const openGeoFile = async (path: string, now: number): Promise<GeoFile> => {
  try {
    const signature = await signatureOf(path)
    const bytes = await readFile(path)
    if ((await signatureOf(path)) !== signature) throw new Error('the file changed while it was being read')
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
  if (bytes[0] === 0x1f && bytes[1] === 0x8b)
    throw new Error('the file is gzip-compressed; decompress it first')
  const reader = new Reader<Response>(bytes, { cache: new DecodedValues() })
  const { metadata } = reader
  const buildMs = metadata.buildEpoch.getTime()
  if (metadata.binaryFormatMajorVersion !== 2) throw new Error('its format version is not 2')
  if (metadata.ipVersion !== 4 && metadata.ipVersion !== 6) throw new Error('its ip_version is not 4 or 6')
  if (!Number.isSafeInteger(metadata.nodeCount) || metadata.nodeCount < 1) throw new Error('it has no tree')
  if (!(buildMs > 0 && buildMs < now + futureMaxMs))
    throw new Error('its build date is missing or in the future')
  await checkSections(bytes, metadata)
  const loaded = { path, signature, reader, buildMs, databaseType: String(metadata.databaseType) }
  const shapes: RecordShape[] = []
  const families: (4 | 6)[] = []
  const silent: (4 | 6)[] = []
  let records = 0
  for (const family of [4, 6] as const) {
    if (family === 6 && metadata.ipVersion === 4) continue
    const { addresses, found } = await samplesOf(reader, family)
    if (addresses.length > 0) families.push(family)
    else if (found > 0) silent.push(family)
    records += addresses.length
    shapes.push(...(await shapesOf(reader, addresses)))
  }
  const [shape] = shapes
  if (shape === undefined || shapes.length < records * locatedShareMin) {
    throw new Error(`it contains no countries (database type "${loaded.databaseType}")`)
  }
  return { ...loaded, families, silent, shape, sizeBytes: bytes.length }
}

/** Checks that the tree ends as stated in the metadata, and that neither the tree nor the data section has a hole. */
async function checkSections(bytes: Buffer, metadata: Reader<Response>['metadata']): Promise<void> {
  const dataEnd = bytes.lastIndexOf(metadataMarker)
  const dataStart = metadata.searchTreeSize + 16
  if (dataEnd < dataStart) throw new Error('it ends before its data section')
  if (bytes.subarray(metadata.searchTreeSize, dataStart).some((byte) => byte !== 0)) {
    throw new Error('its tree does not end as stated in its metadata')
  }
  const inTree = await holeIn(bytes.subarray(0, metadata.searchTreeSize), holeBytes.tree)
  if (inTree !== null) throw new Error(`its tree has a hole at byte ${inTree}`)
  const inData = await holeIn(bytes.subarray(dataStart, dataEnd), holeBytes.data)
  if (inData !== null) throw new Error(`its data section has a hole at byte ${dataStart + inData}`)
}

/** Returns the place of the first `length` zero bytes in a row. */
async function holeIn(bytes: Buffer, length: number): Promise<number | null> {
  const hole = Buffer.alloc(length)
  for (let from = 0; from < bytes.length; from += searchedPerSlice) {
    const at = bytes.subarray(from, from + searchedPerSlice + length - 1).indexOf(hole)
    if (at >= 0) return from + at
    await nextTurn()
  }
  return null
}

async function shapesOf(
  reader: Reader<Response>,
  addresses: readonly LookupAddress[],
): Promise<RecordShape[]> {
  const shapes: RecordShape[] = []
  for (const [index, address] of addresses.entries()) {
    if (index % samplesPerSlice === 0) await nextTurn()
    const record = reader.get(address.text)
    toLocation(record)
    const shape = recordShape(record)
    if (shape !== null) shapes.push(shape)
  }
  return shapes
}

/** A cache for mmdb-lib. Without it, a file of nested pointers could take far more memory than its size. */
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
 * Returns up to 1,000 public addresses with a record, which are always the same for the same file, and the number of addresses with a record
 * that were tried. A search for IPv6 starts from a random allocated block, because some files cover far more unallocated than allocated
 * space.
 */
export async function samplesOf(
  reader: Reader<Response>,
  family: 4 | 6,
): Promise<{ addresses: LookupAddress[]; found: number }> {
  const random = seededRandom(family)
  const starts = startsOf(family).filter((start) => addressIn(reader, start, random) !== null)
  const addresses: LookupAddress[] = []
  let found = 0
  for (let attempt = 1; attempt <= sampleAttemptsMax && addresses.length < samplesMax; attempt++) {
    if (attempt % samplesPerSlice === 0) await nextTurn()
    const start = starts[Math.floor(random() * starts.length)]
    if (start === undefined) break
    const text = addressIn(reader, start, random)
    if (text === null) continue
    found++
    const parsed = parseAddress(text)
    if (parsed?.reachable && parsed.lookup.family === family) addresses.push(parsed.lookup)
  }
  return { addresses, found }
}

/** Starting points for samples, as leading bits: all of IPv4, and each allocated block of IPv6. */
type Start = { readonly bits: readonly number[]; readonly family: 4 | 6 }

function startsOf(family: 4 | 6): Start[] {
  if (family === 4) return [{ bits: [], family }]
  return ipv6Allocated.map((block) => {
    const [groups = '', length = ''] = block.split('::/')
    const digits = groups.split(':').map((group) => Number.parseInt(group, 16).toString(2).padStart(16, '0'))
    return { bits: [...digits.join('')].slice(0, Number(length)).map(Number), family }
  })
}

/**
 * Returns a random address under `start` that has a record; null if none was found. An unsuccessful lookup returns the bit at which the path
 * ended. The search then continues in the sibling branch, or one level up if both branches are empty.
 */
function addressIn(reader: Reader<Response>, start: Start, random: () => number): string | null {
  const length = start.family === 4 ? 32 : 128
  const bits = [...start.bits]
  const turned = new Set<number>()
  for (let met = 0; met < barrenMax; met++) {
    while (bits.length < length) bits.push(random() < 0.5 ? 0 : 1)
    const text = textOf(bits)
    const [record, depth] = reader.getWithPrefixLength(text)
    if (record !== null) return text
    let end = depth
    while (turned.delete(end)) end--
    if (end <= start.bits.length) return null
    turned.add(end)
    bits.splice(end - 1, length, bits[end - 1] === 0 ? 1 : 0)
  }
  return null
}

function textOf(bits: readonly number[]): string {
  const [size, base, separator] = bits.length === 32 ? ([8, 10, '.'] as const) : ([16, 16, ':'] as const)
  let text = ''
  for (let at = 0, part = 0; at < bits.length; at++) {
    part = part * 2 + (bits[at] ?? 0)
    if ((at + 1) % size !== 0) continue
    text += (text === '' ? '' : separator) + part.toString(base)
    part = 0
  }
  return text
}

/** Mulberry32, with a seed so that a file is always checked with the same addresses. */
const seededRandom = (seed: number): (() => number) => {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Returns the file's current state on disk, or `absent` if it does not exist. */
export const signatureOf = async (path: string): Promise<string> => {
  try {
    const { mtimeMs, ctimeMs, size, ino } = await stat(path)
    return [mtimeMs, ctimeMs, size, ino].join(':')
  } catch {
    return 'absent'
  }
}

/** Returns the message of anything thrown. */
export const sentenceOf = (error: unknown): string => {
  return error instanceof Error ? error.message : String(error)
}
