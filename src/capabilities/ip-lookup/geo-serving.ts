import { setImmediate as nextTurn } from 'node:timers/promises'
import { type GeoFile, openGeoFile, remedy, samplesOf, signatureOf } from './geo-file.ts'
import { toLocation } from './location.ts'

const lostShareMax = 0.02
const changedShareMax = 0.02
const comparisonsPerSlice = 50

export type Serving = { files: GeoFile[]; ipv4: GeoFile | null; ipv6: GeoFile | null; undecodable: number }

/** Decides which file serves each family. @throws Error if two files have equal claims to a family. */
export const serve = (files: GeoFile[]): Serving => {
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
export const replacement = async (
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
export const describeFiles = (loaded: GeoFile[], now: number) => {
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
