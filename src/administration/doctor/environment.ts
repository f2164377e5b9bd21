import type { Config } from '../../config.ts'
import { misspeltText, misspeltVariables } from '../../foundation/misspelt-variables.ts'
import { type Check, fault, ok, type Told, warning } from './finding.ts'

/** What the environment says, and whether it can be meant. */

type Environment = Readonly<Record<string, string | undefined>>

/** `faults`: what is wrong with variables of ours, a line for each. */
export const environmentChecks = (
  environment: Environment,
  { config, faults, nodeRange }: { config: Config; faults: readonly string[]; nodeRange: string },
): readonly Check[] => [
  {
    about: 'environment',
    look: () => {
      const wrong = faults.map((one) =>
        fault(one, 'Set the variable right: the service does not start with it.'),
      )
      const doubtful = misspeltVariables(environment).map((one) =>
        warning(
          `${misspeltText(one)}`,
          one.meant === null
            ? 'Rename or unset it; the table of the configuration lists all variables.'
            : `Rename it to ${one.meant}, or unset it.`,
        ),
      )
      const all = [...wrong, ...doubtful]
      return all.length > 0 ? all : ok('every variable is known and makes sense')
    },
  },
  { about: 'passwords', look: () => passwords(config) },
  { about: 'Node.js', look: () => release(process.versions.node, nodeRange) },
]

/** `>=24.15`: what the package says it needs. */
const release = (version: string, range: string): Told => {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [wantedMajor = 0, wantedMinor = 0] = range.replace(/^>=/, '').split('.').map(Number)
  const remedy =
    'Start with npm start, or node from node_modules/.bin: the project brings the Node.js it runs on.'
  if (major < wantedMajor || (major === wantedMajor && minor < wantedMinor))
    return fault(`Node.js ${version} runs this, and ${range} is needed`, remedy)
  return major > wantedMajor
    ? warning(`Node.js ${version} runs this; the tests ran with ${wantedMajor}`, remedy)
    : ok(`Node.js ${version}`)
}

const wellKnown = new Set([
  ...['', 'postgres', 'password', 'changeit', 'changeme', 'change-me', 'admin', 'root', 'secret', 'test'],
  ...['enrichment', 'enrichment_service', 'eventstore', 'redis', '123456', '12345678', 'letmein', 'example'],
])
/** A key of this many different characters was typed and not drawn. */
const differentCharactersMin = 12

const passwords = (config: Config): readonly Told[] => {
  const found: Told[] = []
  for (const name of ['DATABASE_URL', 'DATABASE_MIGRATION_URL', 'EVENT_LOG_URL', 'REDIS_URL'] as const) {
    const url = config[name]
    const known = url === undefined ? null : wellKnownIn(url, name === 'REDIS_URL')
    if (known !== null)
      found.push(
        warning(
          `${name}: its password is ${known}`,
          'Give that user a password of its own, such as openssl rand -hex 32 makes, in the server first and then here.',
        ),
      )
  }
  if (config.SECRET_KEY !== undefined && new Set(config.SECRET_KEY).size < differentCharactersMin)
    found.push(
      warning(
        `SECRET_KEY has only ${new Set(config.SECRET_KEY).size} different characters`,
        'Where nothing was issued yet, take one that was drawn: openssl rand -hex 32. A key in use stays, or every issued key is refused.',
      ),
    )
  return found.length > 0 ? found : [ok('none is a well-known one')]
}

/** What is to be said of the password in a URL; null: nothing. `needed`: there is no other way to be known to that server. */
const wellKnownIn = (text: string, needed: boolean): string | null => {
  // Several hosts are no URL to Node.js; the first will do.
  const one = text.replace(/^[a-z+]+:/, 'http:').replace(/,[^/?]*/, '')
  if (!URL.canParse(one)) return null
  const { username, password, hostname } = new URL(one)
  const plain = safelyDecoded(password)
  if (plain === '') return needed && !isOwnHost(hostname) ? 'missing' : null
  if (wellKnown.has(plain.toLowerCase())) return 'a well-known one'
  return plain === safelyDecoded(username) ? 'the name of its user' : null
}

const safelyDecoded = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Connections that do not leave the machine are often let in without a password, by who asks. */
const isOwnHost = (host: string): boolean =>
  host === '' || host === 'localhost' || host === '[::1]' || host.startsWith('127.')
