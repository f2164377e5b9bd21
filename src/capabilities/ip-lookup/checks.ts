import { pino } from 'pino'
import { type CapabilityCheck, SettingFault } from '../../call/capability.ts'
import { type GeoSettings, openConfiguredDatabase } from './geo-settings.ts'

/** Networks change hands: after half a year every tenth address is somewhere else. */
export const geoAgeDaysMax = 180

export const geoRemedy =
  'Set GEOIP_CITY_DB to a current file and renew it every month; "geo status" shows what would be served.'

/** Whether the location files can be served, and how old they are. */
export const geoAge = (settings: GeoSettings): CapabilityCheck => ({
  about: 'location files',
  look: async () => {
    try {
      const geo = await openConfiguredDatabase(settings, pino({ level: 'silent' }))
      const { build_date: built, age_days: days, files } = geo.status()
      geo.close()
      const says = `${files.map(({ path }) => path.slice(path.lastIndexOf('/') + 1)).join(', ')}: built ${built.slice(0, 10)}, ${days} days ago`
      return days > geoAgeDaysMax
        ? { level: 'warning', says, remedy: geoRemedy }
        : { level: 'ok', says, remedy: null }
    } catch (error) {
      if (!(error instanceof SettingFault)) throw error
      return { level: 'fault', says: error.message, remedy: 'Put a sound file in its place, by renaming.' }
    }
  },
})
