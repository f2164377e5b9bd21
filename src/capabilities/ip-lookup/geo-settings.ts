import type { Logger } from 'pino'
import { SettingFault } from '../../call/capability.ts'
import { bundledGeoPaths, type GeoDatabase, openGeoDatabase } from './geo-database.ts'

export type GeoSettings = {
  /** Undefined: the files that come as an npm package. */
  readonly GEOIP_CITY_DB?: string[] | undefined
}

/** Opens the location files that the settings name. Rejects with `SettingFault` if they cannot be served. */
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
