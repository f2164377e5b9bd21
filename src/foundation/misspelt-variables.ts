import { variableNames } from '../config.ts'
import { nearest } from './nearest.ts'

/**
 * Finds environment variables that are not used, but look as if they were meant for this service. A misspelled variable does not cause an error:
 * its default applies, so the service can use a different address or directory than its operator expects.
 */

type Misspelt = {
  readonly name: string
  /** The variable that was probably meant. Null: the name begins like some of our variables, but is not similar to any. */
  readonly meant: string | null
  /** For a variable of an earlier version: the replacement. */
  readonly instead?: string
}

const edge =
  'processes no longer forward calls to each other. Use a proxy that hashes X-Api-Key, so that all calls with a key go to one process: src/guides/deployment.md, "How do I put an edge in front?"'
const removed: Readonly<Record<string, string>> = {
  PEER_HOST: edge,
  PEER_PORT: edge,
  PROFILE_PAGE_URL: 'profiles now come from the data set or from a JSON source: src/guides/configuration.md',
  LEDGER_OWNERS: edge,
  SECRET_KEYS_OLD:
    'change SECRET_KEY with SECRET_KEY_NEW and "secrets rotate" instead: src/guides/backup.md, "How do I rotate SECRET_KEY?"',
}

/** Variables of other programs with names that are similar to ours. */
const others = new Set([
  'HOME',
  'PORT',
  'PATH',
  'PROFILE',
  'API_HOSTNAME',
  'DASHBOARD_HOSTNAME',
  'DATABASE_PASSWORD',
  'EVENT_LOG_PASSWORD',
  'REDIS_PASSWORD',
  'SECRET_KEY_BASE',
  'LOGLEVEL',
  'HOSTNAME',
  'HOSTTYPE',
])
/** Kubernetes sets variables with the name of each service in every container. */
const ofServices = /_SERVICE_(?:HOST|PORT)|_PORT_\d+_(?:TCP|UDP)/
/** Hardly any other program uses variables that begin with these words. */
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
  if (instead !== undefined) return `${name} is no longer used: ${instead}`
  return meant === null
    ? `${name} is not a variable of this service, so it is ignored`
    : `${name} is not a variable of this service, so it is ignored; did you mean ${meant}?`
}
