import type { CapabilityCommand } from '../../call/command.ts'
import { type GeoSettings, openConfiguredDatabase } from './geo-settings.ts'

export const geoStatus: CapabilityCommand<GeoSettings> = {
  name: 'geo status',
  summary: 'which location files would be served, how old they are, and whether they are sound',
  parameters: [],
  changes: 'nothing',
  run: async ({ settings, logger }) => {
    const geo = await openConfiguredDatabase(settings, logger)
    try {
      const status = geo.status()
      const { files, ...all } = status
      const rows = files.map(({ path, families, ...file }) => ({
        families: families.map((family) => `IPv${family}`).join(', '),
        ...file,
        path,
      }))
      return { json: status, sections: [rows, all] }
    } finally {
      geo.close()
    }
  },
}
