/**
 * One MaxMind DB file, read completely and checked before it is used.
 *
 * mmdb-lib constructs a reader over most damaged files without complaint and then answers wrongly, so a file is
 * refused unless its metadata, its sections and a thousand sampled records are sound.
 */
import { readFile, stat } from 'node:fs/promises'
import { Reader, type Response } from 'maxmind'
import { parseAddress } from '../../egress/address.ts'
import { ipv6Allocated } from '../../egress/iana.ts'
import { type RecordShape, recordShape, toLocation } from './location.ts'

/** A file that passed its checks, in memory. */
export type GeoFile = {
  path: string
  /** The file's state on disk when it was read; see `signatureOf`. */
  signature: string
  sizeBytes: number
  reader: Reader<Response>
  /** The families with records at addresses that we answer. */
  families: (4 | 6)[]
  shape: RecordShape
  /** Milliseconds since the epoch. */
  buildMs: number
  databaseType: string
}

/** Values mmdb-lib keeps decoded between records, mostly texts that many records share. */
const decodedValuesMax = 10_000
const samplesMax = 1_000
/** Fewer than one country in ten records means that it is another kind of file, such as networks by AS number. */
const locatedShareMin = 0.1
/** Build dates come from other clocks. */
const futureMaxMs = 2 * 86_400_000
/** This many zero bytes are a hole in the file: no location record has such a value, and no node of a tree points back at the root. */
const holeBytes = { data: 64, tree: 8 } as const
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
    return checkedFile({ path, signature, bytes, now })
  } catch (error) {
    throw new Error(
      `The geo database ${path} cannot be used: ${error instanceof Error ? error.message : String(error)}. ${remedy}`,
      {
        cause: error,
      },
    )
  }
}

const checkedFile = (read: { path: string; signature: string; bytes: Buffer; now: number }): GeoFile => {
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
  checkSections(bytes, metadata)
  const loaded = { path, signature, reader, buildMs, databaseType: String(metadata.databaseType) }
  const shapes: RecordShape[] = []
  const families: (4 | 6)[] = []
  let records = 0
  for (const family of [4, 6] as const) {
    if (family === 6 && metadata.ipVersion === 4) continue
    const found = samples(family)
      .map((text) => reader.get(text))
      .filter((record) => record !== null)
    if (found.length > 0) families.push(family)
    records += found.length
    // Decoded here, because a damaged record has to be refused now.
    for (const record of found) toLocation(record)
    shapes.push(...found.map(recordShape).filter((shape) => shape !== null))
  }
  const [shape] = shapes
  if (shape === undefined || shapes.length < records * locatedShareMin) {
    throw new Error(`it holds no countries (database type "${loaded.databaseType}")`)
  }
  return { ...loaded, families, shape, sizeBytes: bytes.length }
}

/** Checks that the tree ends where the metadata says, and that there is no hole in it or in the data section. */
function checkSections(bytes: Buffer, metadata: Reader<Response>['metadata']): void {
  const dataEnd = bytes.lastIndexOf(metadataMarker)
  const dataStart = metadata.searchTreeSize + 16
  if (dataEnd < dataStart) throw new Error('it ends before its data section')
  if (bytes.subarray(metadata.searchTreeSize, dataStart).some((byte) => byte !== 0)) {
    throw new Error('its tree does not end where its metadata says')
  }
  const inTree = bytes.subarray(0, metadata.searchTreeSize).indexOf(Buffer.alloc(holeBytes.tree))
  if (inTree >= 0) throw new Error(`its tree has a hole at byte ${inTree}`)
  const inData = bytes.subarray(dataStart, dataEnd).indexOf(Buffer.alloc(holeBytes.data))
  if (inData >= 0) throw new Error(`its data section has a hole at byte ${dataStart + inData}`)
}

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

/** Addresses that may be answered, always the same: 1,000 of all IPv4, or of the allocated blocks of IPv6. */
export const samples = (family: 4 | 6): readonly string[] => {
  const random = seededRandom(family)
  const addresses: string[] = []
  while (addresses.length < samplesMax) {
    const parsed = parseAddress(family === 4 ? randomIPv4(random) : randomIPv6(random))
    if (parsed?.reachable && parsed.lookup.family === family) addresses.push(parsed.lookup.text)
  }
  return addresses
}

const randomIPv4 = (random: () => number): string =>
  [1, 2, 3, 4].map(() => Math.floor(random() * 256)).join('.')

/** Registries give whole /32 blocks to networks, so only the first 32 bits vary. */
const randomIPv6 = (random: () => number): string => {
  const [groups = '', length] = (ipv6Allocated[Math.floor(random() * ipv6Allocated.length)] ?? '').split(
    '::/',
  )
  const [high = 0, low = 0] = groups.split(':').map((group) => Number.parseInt(group, 16))
  const top = high * 2 ** 16 + low + Math.floor(random() * 2 ** (32 - Number(length)))
  return `${Math.floor(top / 2 ** 16).toString(16)}:${(top % 2 ** 16).toString(16)}::1`
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

/** The file's current state on disk; if the file is missing, a text that no file can have. */
export const signatureOf = async (path: string): Promise<string> => {
  try {
    const { mtimeMs, ctimeMs, size, ino } = await stat(path)
    return [mtimeMs, ctimeMs, size, ino].join(':')
  } catch {
    return 'absent'
  }
}
