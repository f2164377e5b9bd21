import { z } from 'zod'
import { query } from '../../administration/declare.ts'
import { openConfiguredDatabase } from './geo-settings.ts'

const status = query({
  name: 'geo status',
  action: 'system.read',
  summary: 'show the location files that the service would use, with their age and any damage',
  input: z.object({}),
  anyHistory: true,
  run: async ({ data, logger }) => {
    const geo = await openConfiguredDatabase((await data()).settings, logger)
    try {
      const found = geo.status()
      const { files, ...all } = found
      const rows = files.map(({ path, families, ...file }) => ({
        families: families.map((family) => `IPv${family}`).join(', '),
        ...file,
        path,
      }))
      return { json: found, sections: [rows, all] }
    } finally {
      geo.close()
    }
  },
})

export const geoDeclarations = [status]
