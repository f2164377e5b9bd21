import { variableNames } from '../config.ts'
import { nearest } from './nearest.ts'

/**
 * Variables of the environment that nothing reads and that look as if they were meant for this service. A misspelt one is not
 * an error to anyone: the default counts, and a service listens elsewhere or keeps its data in another place than its
 * operator believes.
 */

type Misspelt = {
  readonly name: string
  /** What it may be meant for; null: it begins as some of ours do, and is like none of them. */
  readonly meant: string | null
  /** It was a variable of an earlier version: what serves instead. */
  readonly instead?: string
}

const edge =
  'processes no longer pass calls to each other; an edge that hashes X-Api-Key keeps a key at one process: src/guides/deployment.md, "Several processes"'
const removed: Readonly<Record<string, string>> = {
  PEER_HOST: edge,
  PEER_PORT: edge,
  LEDGER_OWNERS: edge,
  SECRET_KEYS_OLD:
    'SECRET_KEY wraps one installation key, and SECRET_KEY_NEW with "secrets rotate" changes SECRET_KEY: src/guides/operators.md',
}

/** What other programs have that run beside this one, and what looks like one of ours by chance. */
const others = new Set([
  ...['HOME', 'PORT', 'PATH', 'PROFILE', 'API_HOSTNAME', 'DASHBOARD_HOSTNAME', 'DATABASE_PASSWORD'],
  ...['EVENT_LOG_PASSWORD', 'REDIS_PASSWORD', 'SECRET_KEY_BASE', 'LOGLEVEL', 'HOSTNAME', 'HOSTTYPE'],
])
/** Kubernetes tells every container of every service there is, in names made of theirs. */
const ofServices = /_SERVICE_(?:HOST|PORT)|_PORT_\d+_(?:TCP|UDP)/
/** Hardly any other program has variables that begin like this. */
const families =
  /^(?:EVENT_LOG|METRICS|GEOIP|EGRESS|PROFILE_HTTP|PROFILE_PAGE|PROFILE_PROVIDER|COMPANY_HOME|TRUSTED_PROX)/
const misspeltMax = 20
const nameLengthMax = 60

/** At most twenty, in the order of the environment. Values are not looked at, but that they are there. */
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

/** What is said of one. */
export const misspeltText = ({ name, meant, instead }: Misspelt): string => {
  if (instead !== undefined) return `${name} is no longer read: ${instead}`
  return meant === null
    ? `${name} is no variable of this service, and nothing reads it`
    : `${name} is no variable of this service, and nothing reads it; is ${meant} meant?`
}
