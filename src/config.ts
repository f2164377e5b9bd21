import { z } from 'zod'

/**
 * The environment, parsed once and frozen. A bad value stops the boot and names the variable, what is expected and,
 * unless it is a secret, what it was.
 */

const port = z.coerce.number().int().min(0).max(65_535)
const roleName = z.enum(['api', 'dashboard', 'projector', 'jobs'])
export type Role = z.infer<typeof roleName>

const list = (text: string): string[] =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

const variables = z.object({
  API_PORT: port.default(3000),
  DASHBOARD_PORT: port.default(3001),
  HOST: z.string().min(1).default('127.0.0.1'),
  DATA_DIR: z.string().min(1).default('.data'),
  DATABASE_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\//, 'a URL such as postgres://user:password@host:5432/database')
    .optional(),
  EVENT_LOG_URL: z
    .string()
    .regex(
      /^(esdb|kurrentdb)(\+discover)?:\/\//,
      'a connection string such as esdb://user:password@host:2113?tls=true',
    )
    .optional(),
  REDIS_URL: z
    .string()
    .regex(/^rediss?:\/\//, 'a URL such as redis://user:password@host:6379/0')
    .refine((text) => URL.canParse(text), 'a URL such as redis://user:password@host:6379/0')
    .optional(),
  ROLES: z
    .string()
    .transform(list)
    .pipe(z.array(roleName).min(1))
    .default(['api', 'dashboard', 'projector', 'jobs']),
  SECRET_KEY: z.string().min(32, 'at least 32 characters').optional(),
  GEOIP_CITY_DB: z.string().transform(list).pipe(z.array(z.string()).min(1).max(2)).optional(),
  LOG_LEVEL: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
})

export type Config = Readonly<z.infer<typeof variables>>

const secretVariables = new Set(['SECRET_KEY', 'DATABASE_URL', 'EVENT_LOG_URL', 'REDIS_URL'])

/** The environment does not make sense. `message` names every bad variable, never a secret's value. */
export class ConfigError extends Error {
  override name = 'ConfigError'
}

/** Empty variables count as unset. Throws `ConfigError`. */
export const parseConfig = (environment: Readonly<Record<string, string | undefined>>): Config => {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''),
  )
  const parsed = variables.safeParse(given)
  if (!parsed.success)
    throw new ConfigError(
      parsed.error.issues
        .map(({ path, message }) => {
          const name = String(path[0])
          const was = secretVariables.has(name) ? '' : ` (it is "${(given[name] ?? '').slice(0, 100)}")`
          return `${name}: ${message}${was}`
        })
        .join('\n'),
    )
  return Object.freeze(parsed.data)
}
