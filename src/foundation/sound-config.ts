import { type Config, ConfigError, parseConfig } from '../config.ts'

/** Where one is missing, the other is what makes no sense. */
const pairs: Readonly<Record<string, string>> = { TLS_CERT: 'TLS_KEY', TLS_KEY: 'TLS_CERT' }

/**
 * The environment without what makes no sense in it, and what that is, a line for each variable: for looking at an
 * installation that does not start.
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
      // Every round leaves out one more, so there is an end.
      if (faults.size === before) throw error
    }
  }
}
