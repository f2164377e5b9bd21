import { pino } from 'pino'
import { type CapabilityCheck, SettingFault } from '../../call/capability.ts'
import { type GeoSettings, openConfiguredDatabase } from './geo-settings.ts'

/** Networks change hands: after six months every tenth address has moved. */
export const geoAgeDaysMax = 180

export const geoRemedy =
  'Set GEOIP_CITY_DB to a current file and renew it every month; "geo status" shows what would be served.'

/** Whether the location files can be served, and how old they are. */
export const geoAge = (settings: GeoSettings): CapabilityCheck => ({
  name: 'location files',
  looksAt: 'whether they can be served, and their age',
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
