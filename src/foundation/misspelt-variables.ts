import { variableNames } from '../config.ts'
import { nearest } from './nearest.ts'

/**
 * Finds environment variables that are not read but look as if they were meant for this service. A misspelt variable causes no error. Its
 * default applies, and the service may use another address or directory than its operator expects.
 */

type Misspelt = {
  readonly name: string
  /** The variable that was probably meant. Null: the name begins like some of our variables but is not close to any. */
  readonly meant: string | null
  /** The replacement of a variable of an earlier version. */
  readonly instead?: string
}

const edge =
  'processes no longer forward calls to each other; an edge that hashes X-Api-Key sends all calls of a key to one process: src/guides/deployment.md, "How do I put an edge in front?"'
const removed: Readonly<Record<string, string>> = {
  PEER_HOST: edge,
  PEER_PORT: edge,
  PROFILE_PAGE_URL: 'profiles come from the data set or from a JSON source: src/guides/configuration.md',
  LEDGER_OWNERS: edge,
  SECRET_KEYS_OLD:
    'SECRET_KEY wraps one installation key, and SECRET_KEY_NEW with "secrets rotate" changes SECRET_KEY: src/guides/backup.md, "How do I rotate SECRET_KEY?"',
}

/** Variables of other programs, and names that are similar to ours by chance. */
const others = new Set([
  ...['HOME', 'PORT', 'PATH', 'PROFILE', 'API_HOSTNAME', 'DASHBOARD_HOSTNAME', 'DATABASE_PASSWORD'],
  ...['EVENT_LOG_PASSWORD', 'REDIS_PASSWORD', 'SECRET_KEY_BASE', 'LOGLEVEL', 'HOSTNAME', 'HOSTTYPE'],
])
/** In every container, Kubernetes sets variables that contain the name of each service. */
const ofServices = /_SERVICE_(?:HOST|PORT)|_PORT_\d+_(?:TCP|UDP)/
/** Hardly any other program has variables with these beginnings. */
const families = /^(?:EVENT_LOG|METRICS|GEOIP|EGRESS|PROFILE_HTTP|PROFILE_PROVIDER|COMPANY_HOME|TRUSTED_PROX)/
const misspeltMax = 20
const nameLengthMax = 60

/** Returns at most twenty variables, in the order of the environment. Ignores their values, unless they are empty. */
export const misspeltVariables = (environment: Readonly<Record<string, string | undefined>>): Misspelt[] => {
  const known = new Set(variableNames)
  const found: Misspelt[] = []
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || value === '' || known.has(name) || others.has(name)) continue
    if (name.length > nameLengthMax || ofServices.test(name) || found.length >= misspeltMax) continue
    const instead = removed[name]
    if (instead !== undefined) {
      found.push({ name, meant: null, instead })
      continue
    }
    const plain = name.trim().toUpperCase().replaceAll('-', '_')
    const meant = variableNames.find((one) => one === plain) ?? nearest(plain, variableNames)
    if (meant !== null || families.test(plain)) found.push({ name, meant })
  }
  return found
}

export const misspeltText = ({ name, meant, instead }: Misspelt): string => {
  if (instead !== undefined) return `${name} is no longer read: ${instead}`
  return meant === null
    ? `${name} is not a variable of this service, and nothing reads it`
    : `${name} is not a variable of this service, and nothing reads it; did you mean ${meant}?`
}
