import { bundledGeoPaths, openGeoDatabase } from '../../capabilities/ip-lookup/geo-database.ts'
import type { Command } from '../command.ts'

export const geoCommands: readonly Command[] = [
  {
    name: 'geo status',
    summary: 'which location files would be served, how old they are, and whether they are sound',
    parameters: [],
    run: async ({ config, logger }) => {
      const geo = await openGeoDatabase({ paths: config.GEOIP_CITY_DB ?? bundledGeoPaths(), logger })
      try {
        return { json: geo.status() }
      } finally {
        geo.close()
      }
    },
  },
]
