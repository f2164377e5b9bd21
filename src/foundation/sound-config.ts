import { type Config, ConfigError, parseConfig } from '../config.ts'

/** Variables that must be set together. */
const pairs: Readonly<Record<string, string>> = { TLS_CERT: 'TLS_KEY', TLS_KEY: 'TLS_CERT' }

/**
 * Returns the configuration without its invalid variables, and a line for each of them. With this, "doctor" can check an installation that does not
 * start.
 */
export const parseSoundConfig = (
  environment: Readonly<Record<string, string | undefined>>,
): { readonly config: Config; readonly faults: ReadonlyMap<string, string> } => {
  const faults = new Map<string, string>()
  for (;;) {
    try {
      const sound = Object.entries(environment).filter(([name]) => !faults.has(name))
      return { config: parseConfig(Object.fromEntries(sound)), faults }
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      const before = faults.size
      for (const line of error.message.split('\n')) {
        const name = line.slice(0, line.indexOf(':'))
        const isSet = (environment[name] ?? '') !== '' && !faults.has(name)
        faults.set(isSet ? name : (pairs[name] ?? name), line)
      }
      // Every round removes another variable, so the loop ends.
      if (faults.size === before) throw error
    }
  }
}
