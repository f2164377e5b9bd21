import { mkdtemp, readFile, rename, rm, truncate, unlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Reader, type Response } from 'maxmind'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import {
  bundledGeoPaths,
  type GeoDatabase,
  type GeoDatabaseOptions,
  openGeoDatabase,
} from '../../src/capabilities/ip-lookup/geo-database.ts'
import type { Location } from '../../src/capabilities/ip-lookup/location.ts'
import { parseAddress } from '../../src/egress/address.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { type MmdbSource, type MmdbValue, writeMmdb } from '../support/mmdb-writer.ts'
import { seededRandom } from './seeded-random.ts'

const builtSeconds = 1_780_000_000
const clock = () => (builtSeconds + 10 * 86_400) * 1000

const opened: GeoDatabase[] = []
const logger = { info: vi.fn(), warn: vi.fn(), error: vi.fn() }

const directory = await mkdtemp(join(tmpdir(), 'geo-database-'))
afterAll(() => rm(directory, { recursive: true, force: true }))
afterEach(() => {
  for (const database of opened.splice(0)) database.close()
  vi.clearAllMocks()
})

async function open(paths: string[], options: Partial<GeoDatabaseOptions> = {}): Promise<GeoDatabase> {
  const database = await openGeoDatabase({ paths, logger, clock, pollIntervalMs: 600_000, ...options })
  opened.push(database)
  return database
}

let written = 0
async function file(content: MmdbSource | Buffer): Promise<string> {
  const path = join(directory, `${++written}.mmdb`)
  await replaceFile(path, content)
  return path
}

/** Writes the complete file next to the old one, then renames it over the old one, as operators should. */
async function replaceFile(path: string, content: MmdbSource | Buffer): Promise<void> {
  const bytes = Buffer.isBuffer(content) ? content : writeMmdb(content)
  await writeFile(`${path}.next`, bytes)
  await rename(`${path}.next`, path)
}

function at(database: GeoDatabase, text: string): Location | null {
  const parsed = parseAddress(text)
  return parsed?.reachable ? database.lookup(parsed.lookup) : null
}

const flat = (countryCode: string, city: string): MmdbValue => ({
  city,
  country_code: countryCode,
  latitude: 1.5,
  longitude: 2.5,
  postcode: '',
  state1: '',
  state2: '',
})
const london = {
  city: { names: { en: 'London' } },
  continent: { code: 'EU', names: { en: 'Europe' } },
  country: { iso_code: 'GB', names: { en: 'United Kingdom' } },
  location: { latitude: 51.5142, longitude: -0.0931 },
  postal: { code: 'EC4N' },
  subdivisions: [{ iso_code: 'ENG', names: { en: 'England' } }],
}

/** Has many records all over 1.0.0.0/8 and 2a00::/12, so that damage hits some of them. */
function wide(ipVersion: 4 | 6, buildEpoch = builtSeconds): MmdbSource {
  const networks: Record<string, MmdbValue> = {}
  for (let block = 0; block < 256; block++) {
    networks[`1.${block}.0.0/16`] = flat(
      block % 2 === 0 ? 'AU' : 'NZ',
      `A city with quite a long name, number ${block}`,
    )
    if (ipVersion === 6) networks[`2a00:${block.toString(16)}::/32`] = flat('DE', `City six ${block}`)
  }
  return { ipVersion, networks, buildEpoch }
}

describe('a database answers from its records', () => {
  it('of two files, one for each family', async () => {
    const ipv4 = await file({
      ipVersion: 4,
      networks: { '81.2.69.0/24': london, '1.1.1.0/24': flat('AU', 'Sydney') },
    })
    const ipv6 = await file({
      ipVersion: 6,
      networks: { '2a01:4f8::/32': flat('DE', 'Nuremberg') },
    })
    const database = await open([ipv4, ipv6])
    expect(at(database, '81.2.69.160')).toMatchObject({ city: 'London', region_code: 'ENG', postal: 'EC4N' })
    expect(at(database, '1.1.1.1')).toMatchObject({ city: 'Sydney', country: 'Australia', latitude: 1.5 })
    expect(at(database, '2a01:4f8::1')).toMatchObject({ city: 'Nuremberg', is_eu: true })
    expect(at(database, '::ffff:1.1.1.1')).toMatchObject({ city: 'Sydney' })
    expect(at(database, '2002:101:101::1')).toMatchObject({ city: 'Sydney' })
    expect(at(database, '8.8.8.8')).toBeNull()
    expect(at(database, '2a02::1')).toBeNull()
    expect(database.status().files.map((status) => status.families)).toEqual([[4], [6]])
  })

  it('of one file for both families', async () => {
    const path = await file({
      ipVersion: 6,
      networks: { '81.2.69.0/24': london, '2a01:4f8::/32': flat('DE', 'Nuremberg') },
    })
    const database = await open([path])
    expect(at(database, '81.2.69.1')).toMatchObject({ city: 'London' })
    expect(at(database, '2a01:4f8::1')).toMatchObject({ city: 'Nuremberg' })
    expect(database.status().files[0]?.families).toEqual([4, 6])
  })

  it('a country-only file and a file with coordinates as texts can be used', async () => {
    const lite = {
      continent: 'Oceania',
      continent_code: 'OC',
      country: 'Australia',
      country_code: 'AU',
      asn: 'AS64500',
    }
    const texts = {
      country_code: 'DE',
      city: 'Berlin',
      latitude: '52.51961',
      longitude: '13.40691',
      state1: 'Berlin',
    }
    const database = await open([
      await file({ ipVersion: 4, networks: { '1.1.1.0/24': lite } }),
      await file({ ipVersion: 6, networks: { '2a00::/16': texts } }),
    ])
    expect(at(database, '1.1.1.1')).toMatchObject({ country: 'Australia', city: null, calling_code: '61' })
    expect(at(database, '2a00::1')).toMatchObject({
      latitude: 52.5196,
      longitude: 13.4069,
      region_code: 'BE',
    })
    expect(database.status().record_shape).toBe('country, flat')
  })

  it('status names the files, their age and their shape', async () => {
    const path = await file({ ...wide(4), databaseType: 'DBIP-City-Lite' })
    const database = await open([path])
    expect(database.status()).toEqual({
      files: [
        {
          path,
          families: [4],
          database_type: 'DBIP-City-Lite',
          record_shape: 'flat',
          build_date: '2026-05-28T20:26:40.000Z',
          age_days: 10,
          size_bytes: expect.any(Number),
        },
      ],
      build_date: '2026-05-28T20:26:40.000Z',
      age_days: 10,
      database_type: 'DBIP-City-Lite',
      record_shape: 'flat',
      reloads: 0,
      failed_reloads: 0,
      last_error: null,
      undecodable_records: 0,
    })
    expect(logger.warn).not.toHaveBeenCalled()
  })

  it('a file is reported as old from the age at which "doctor" also warns', async () => {
    await open([await file(wide(4, builtSeconds - 170 * 86_400))])
    expect(logger.warn).not.toHaveBeenCalled()
    await open([await file(wide(4, builtSeconds - 171 * 86_400))])
    expect(logger.warn).toHaveBeenCalledWith(
      expect.objectContaining({ age_days: 181 }),
      expect.stringContaining('old'),
    )
  })
})

describe('the families of a file are read from its tree', () => {
  /** With these networks, all IPv4 addresses except 1.0.0.0/8 lead to nodes without records. */
  const barren = Array.from({ length: 31 }, (_, n) => `${(n + 1) * 8}.0.0.0/5`)

  it.each([4, 6] as const)(
    'where most branches end in nothing, in a file of ip_version %i',
    async (ipVersion) => {
      const networks: Record<string, MmdbValue> = { '1.2.0.0/16': flat('AU', 'Sydney') }
      if (ipVersion === 6) networks['2a00:1::/32'] = flat('DE', 'Berlin')
      const database = await open([await file({ ipVersion, networks, barren, buildEpoch: builtSeconds })])
      expect(at(database, '1.2.3.4')).toMatchObject({ country_code: 'AU' })
      expect(database.status().files[0]?.families).toEqual(ipVersion === 4 ? [4] : [4, 6])
    },
  )

  it('and a family that no file locates is reported by name, at the start and after a reload', async () => {
    const networks = { '10.0.0.0/8': flat('US', 'X'), '2a00:1::/32': flat('DE', 'Berlin') }
    const path = await file({ ipVersion: 6, networks, buildEpoch: builtSeconds })
    const database = await open([path])
    const warnings = [
      [{ path, family: 4 }, 'geo database: the file locates no public IPv4 address'],
      [
        { paths: [path], family: 4 },
        'geo database: no file locates IPv4 addresses, so every one of them is answered with success: false',
      ],
    ]
    expect(logger.warn.mock.calls).toEqual(warnings)
    await replaceFile(path, { ipVersion: 6, networks, buildEpoch: builtSeconds + 1 })
    await database.reload()
    expect(logger.warn.mock.calls).toEqual([...warnings, ...warnings])
  })
})

describe('a file that cannot be trusted stops the start, and the error names it and the remedy', () => {
  const good = () => writeMmdb(wide(4))
  const cases: [string, () => Buffer | MmdbSource, RegExp][] = [
    ['text', () => Buffer.from('<html>not a database</html>'), /cannot be used/],
    ['gzip', () => Buffer.concat([Buffer.from([0x1f, 0x8b]), good()]), /gzip/],
    ['cut in half', () => good().subarray(0, 8_000), /cannot be used/],
    ['a hole in the tree', () => hole(good(), { at: 700, length: 800 }), /tree/],
    ['a hole in the data', () => hole(good(), { at: 12_000, length: 800 }), /hole/],
    ['networks by AS number', () => asnFile(), /no countries/],
    ['hardly any countries', () => hardlyAnyCountries(), /no countries/],
    [
      'only private networks',
      () => ({ ipVersion: 4, networks: { '10.0.0.0/8': flat('US', 'X') } }),
      /no countries/,
    ],
    ['built in the future', () => wide(4, builtSeconds + 100 * 86_400), /build date/],
  ]
  it.each(cases)('%s', async (_, content, reason) => {
    const path = await file(content())
    const failure = await openGeoDatabase({ paths: [path], logger, clock }).then(() => null, messageOf)
    expect(failure).toMatch(reason)
    expect(failure).toContain(path)
    expect(failure).toContain('GEOIP_CITY_DB')
  })

  it('a missing file', async () => {
    await expect(openGeoDatabase({ paths: ['/nowhere/at-all.mmdb'], logger, clock })).rejects.toThrow(
      /\/nowhere\/at-all\.mmdb.*ENOENT.*GEOIP_CITY_DB/,
    )
  })

  it('no file, and two files of one family', async () => {
    await expect(openGeoDatabase({ paths: [], logger, clock })).rejects.toThrow('GEOIP_CITY_DB')
    const paths = [await file(wide(4)), await file(wide(4))]
    await expect(openGeoDatabase({ paths, logger, clock })).rejects.toThrow(/both contain IPv4/)
  })

  it('a damaged record that the samples missed returns null, is counted each time and logged once', async () => {
    // Every sibling on the way to 9.9.9.9 has a record, so one sample in four billion ends there.
    const networks: Record<string, MmdbValue> = { '9.9.9.9/32': flat('US', 'Rare city') }
    for (let length = 1; length <= 32; length++) {
      const sibling = (0x09090909 ^ (1 << (32 - length))) & (-1 << (32 - length))
      networks[`${[24, 16, 8, 0].map((shift) => (sibling >>> shift) & 255).join('.')}/${length}`] = flat(
        'AU',
        'Other',
      )
    }
    const bytes = writeMmdb({ ipVersion: 4, networks })
    bytes.fill(0, bytes.indexOf('Rare city'), bytes.indexOf('Rare city') + 4)
    const database = await open([await file(bytes)])
    expect([at(database, '9.9.9.9'), at(database, '9.9.9.9')]).toEqual([null, null])
    expect(at(database, '9.9.9.8')?.city).toBe('Other')
    expect(database.status().undecodable_records).toBe(2)
    expect(logger.warn).toHaveBeenCalledTimes(1)
  })
})

describe('a replaced file is checked, then swapped', () => {
  it('reload() serves the new records', async () => {
    const path = await file({ ...wide(4), networks: { '1.0.0.0/8': flat('AU', 'Before') } })
    const database = await open([path])
    const before = at(database, '1.1.1.1')
    await replaceFile(path, {
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('AU', 'After') },
      buildEpoch: builtSeconds + 1,
    })
    await database.reload()
    expect(before?.city).toBe('Before')
    expect(at(database, '1.1.1.1')?.city).toBe('After')
    expect(database.status()).toMatchObject({ reloads: 1, failed_reloads: 0, last_error: null })
  })

  it('polling notices a renamed file', async () => {
    const path = await file({
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('AU', 'Before') },
      buildEpoch: builtSeconds,
    })
    const database = await open([path], { pollIntervalMs: 5 })
    await replaceFile(path, {
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('AU', 'After') },
      buildEpoch: builtSeconds + 1,
    })
    await vi.waitFor(() => expect(at(database, '1.1.1.1')?.city).toBe('After'), {
      timeout: 30_000,
      interval: 5,
    })
    expect(database.status().reloads).toBe(1)
  })

  it('a bad file is refused once, the old file continues to answer, and a good file is accepted', async () => {
    const path = await file(wide(4))
    const database = await open([path], { pollIntervalMs: 5 })
    const serving = at(database, '1.7.0.1')
    await replaceFile(path, Buffer.from('not a database'))
    await vi.waitFor(() => expect(database.status().failed_reloads).toBe(1), { timeout: 30_000, interval: 5 })
    await database.reload()
    expect(database.status()).toMatchObject({ reloads: 0, failed_reloads: 2 })
    expect(database.status().last_error).toContain(path)
    expect(at(database, '1.7.0.1')).toEqual(serving)
    await replaceFile(path, wide(4, builtSeconds + 1))
    await vi.waitFor(() => expect(database.status().reloads).toBe(1), { timeout: 30_000, interval: 5 })
    expect(database.status()).toMatchObject({ failed_reloads: 2, last_error: null })
  })

  it.each([
    ['deleted', (path: string) => unlink(path)],
    ['truncated in place', (path: string) => truncate(path, 5_000)],
    [
      'punched in place',
      async (path: string) => writeFile(path, hole(writeMmdb(wide(4)), { at: 12_000, length: 800 })),
    ],
  ])('a file %s keeps the old data in use', async (_, damage) => {
    const path = await file(wide(4))
    const database = await open([path])
    const before = ['1.0.0.1', '1.99.0.1', '1.255.0.1'].map((text) => at(database, text)?.city)
    await damage(path)
    await database.reload()
    expect(database.status()).toMatchObject({ reloads: 0, failed_reloads: 1 })
    expect(['1.0.0.1', '1.99.0.1', '1.255.0.1'].map((text) => at(database, text)?.city)).toEqual(before)
  })

  it('a file without the country of more than 2 % of addresses is refused, however new it is', async () => {
    const path = await file(wide(4))
    const database = await open([path])
    const fewer = wide(4, builtSeconds + 1)
    const networks = Object.fromEntries(Object.entries(fewer.networks).filter((_, index) => index % 10 !== 0))
    await replaceFile(path, { ...fewer, networks })
    await database.reload()
    expect(database.status()).toMatchObject({ reloads: 0, failed_reloads: 1 })
    expect(database.status().last_error).toMatch(/loses the country of \d+ of 1000/)
    expect(at(database, '1.0.0.1')).not.toBeNull()
  })

  it('a family may not disappear', async () => {
    const path = await file(wide(6))
    const database = await open([path])
    await replaceFile(path, wide(4, builtSeconds + 1))
    await database.reload()
    expect(database.status()).toMatchObject({ reloads: 0, failed_reloads: 1 })
    expect(at(database, '2a00:1::1')?.country_code).toBe('DE')
  })

  it('countries may change in a newer file, not in one of the same age', async () => {
    const path = await file({
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('AU', 'X') },
      buildEpoch: builtSeconds,
    })
    const database = await open([path])
    await replaceFile(path, {
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('NZ', 'X') },
      buildEpoch: builtSeconds,
    })
    await database.reload()
    expect(at(database, '1.1.1.1')?.country_code).toBe('AU')
    await replaceFile(path, {
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('NZ', 'X') },
      buildEpoch: builtSeconds + 1,
    })
    await database.reload()
    expect(at(database, '1.1.1.1')?.country_code).toBe('NZ')
  })

  it('of two files, both are replaced or neither', async () => {
    const ipv4 = await file({
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('AU', 'Before') },
      buildEpoch: builtSeconds,
    })
    const ipv6 = await file({
      ipVersion: 6,
      networks: { '2a00::/12': flat('DE', 'Before') },
      buildEpoch: builtSeconds,
    })
    const database = await open([ipv4, ipv6])
    await replaceFile(ipv4, {
      ipVersion: 4,
      networks: { '1.0.0.0/8': flat('AU', 'After') },
      buildEpoch: builtSeconds + 1,
    })
    await replaceFile(ipv6, Buffer.alloc(100))
    await database.reload()
    expect(at(database, '1.1.1.1')?.city).toBe('Before')
    await replaceFile(ipv6, {
      ipVersion: 6,
      networks: { '2a00::/12': flat('DE', 'After') },
      buildEpoch: builtSeconds + 1,
    })
    await database.reload()
    expect([at(database, '1.1.1.1')?.city, at(database, '2a00::1')?.city]).toEqual(['After', 'After'])
  })

  it('after close() nothing is reloaded', async () => {
    const path = await file(wide(4))
    const database = await open([path], { pollIntervalMs: 5 })
    const running = database.reload()
    database.close()
    await running
    await database.reload()
    expect(database.status().reloads).toBe(0)
    expect(at(database, '1.0.0.1')).not.toBeNull()
  })

  it('five swaps during continuous lookups: no lookup fails or returns older data', {
    skip: !exhaustive,
  }, async () => {
    const version = (number: number): MmdbSource => ({
      ipVersion: 6,
      networks: { '1.0.0.0/8': flat('AU', `${number}`), '2a00::/12': flat('DE', `${number}`) },
      buildEpoch: builtSeconds + number,
    })
    const path = await file(version(0))
    const database = await open([path])
    let lookups = 0
    let failures = 0
    let latest = 0
    let done = false
    const continuous = (async () => {
      while (!done) {
        for (const text of ['1.2.3.4', '2a00::1', '1.255.0.1', '2a0f::1']) {
          const seen = Number(at(database, text)?.city ?? Number.NaN)
          lookups++
          if (!(seen >= latest)) failures++
          latest = seen
        }
        await new Promise(setImmediate)
      }
    })()
    for (let number = 1; number <= 5; number++) {
      await replaceFile(path, version(number))
      await database.reload()
    }
    done = true
    await continuous
    expect(database.status()).toMatchObject({ reloads: 5, failed_reloads: 0, undecodable_records: 0 })
    expect(at(database, '1.2.3.4')?.city).toBe('5')
    expect(failures).toBe(0)
    expect(lookups).toBeGreaterThan(100)
  })
})

// Opening these files takes seconds of processor time.
describe.runIf(exhaustive)('the bundled DB-IP files', () => {
  let database: GeoDatabase
  beforeAll(async () => {
    database = await openGeoDatabase({ paths: bundledGeoPaths(), logger, clock })
  })
  afterAll(() => database.close())

  it('answer for both families with schema-valid locations', () => {
    const random = seededRandom(10)
    let named = 0
    let coded = 0
    for (let round = 0; round < 4_000; round++) {
      const text = [24, 16, 8, 0].map(() => random.integer(256)).join('.')
      const location = at(database, text)
      if (location === null) continue
      expect(Object.values(location)).not.toContain('')
      expect(Object.values(location)).not.toContain(undefined)
      expect(location.country_code).toMatch(/^[A-Z]{2}$/)
      for (const value of [location.country, location.continent, location.calling_code])
        expect(value).not.toBeNull()
      if (location.region === null) continue
      named++
      if (location.region_code !== null) coded++
    }
    expect(named).toBeGreaterThan(3_000)
    expect(coded / named).toBeGreaterThan(0.975)
  })

  it('know well-known addresses', () => {
    expect(at(database, '8.8.8.8')).toMatchObject({
      country_code: 'US',
      region_code: 'CA',
      calling_code: '1',
      postal: null,
    })
    expect(at(database, '81.2.69.160')).toMatchObject({
      country_code: 'GB',
      region_code: 'ENG',
      city: 'London',
    })
    expect(at(database, '2a01:4f8::1')).toMatchObject({ country_code: 'DE', is_eu: true })
  })

  it('are refused with a hole anywhere, also where one searched part ends and the next begins', async () => {
    const bytes = await readFile(bundledGeoPaths()[0] ?? '')
    const { searchTreeSize } = new Reader<Response>(bytes).metadata
    const sections = [
      { what: 'tree', start: 0, length: 8 },
      { what: 'data section', start: searchTreeSize + 16, length: 64 },
    ]
    for (const { what, start, length } of sections) {
      const place = start + 2 * 1024 * 1024 - length / 2
      const damaged = hole(bytes, { at: place, length })
      // Otherwise the hole could begin earlier.
      damaged[place - 1] = 1
      await expect(openGeoDatabase({ paths: [await file(damaged)], logger, clock })).rejects.toThrow(
        `its ${what} has a hole at byte ${place}`,
      )
    }
  })

  it('their invented cities in unallocated space are never returned', () => {
    for (const text of ['2d00::1', '2100::1', '2e00::1', '2001:2::1']) {
      expect(database.lookup({ family: 6, text }), `${text} has a record`).not.toBeNull()
      expect(at(database, text)).toBeNull()
    }
  })
})

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function hole(bytes: Buffer, { at: start, length }: { at: number; length: number }): Buffer {
  return Buffer.from(bytes).fill(0, start, start + length)
}

function asnFile(): MmdbSource {
  return {
    ipVersion: 4,
    networks: { '1.0.0.0/8': { autonomous_system_number: 64500, autonomous_system_organization: 'X' } },
  }
}

function hardlyAnyCountries(): MmdbSource {
  const nameless = { registered_country: { iso_code: 'US' } }
  const networks: Record<string, MmdbValue> = { '64.0.0.0/8': flat('US', 'X') }
  for (let block = 65; block < 96; block++) networks[`${block}.0.0.0/8`] = nameless
  return { ipVersion: 4, networks }
}
