import { z } from 'zod'
import { isCidr, isProxyBlock, isServer } from './config/addresses.ts'
import {
  credentialsEncoded,
  credentialsRule,
  databaseReadable,
  databaseRule,
  hasOneHost,
  oneHostRule,
} from './config/credentials.ts'
import { claimName, providerIssuer, publicOrigin } from './config/sign-in.ts'

const portFrom = (min: 0 | 1) =>
  z
    .string()
    .refine(
      (text) => /^\d{1,5}$/.test(text) && Number(text) >= min && Number(text) <= 65_535,
      `a port number from ${min} to 65535`,
    )
    .transform(Number)
const port = portFrom(0)
const whole = ({ min, max }: { min: number; max: number }, says: string) =>
  z
    .string()
    .refine((text) => /^[1-9]\d{0,8}$/.test(text) && Number(text) >= min && Number(text) <= max, says)
    .transform(Number)
const roleName = z.enum(['api', 'dashboard', 'projector', 'jobs'], {
  error: ({ input }) => `"${input}" is not a role; the roles are api, dashboard, projector and jobs`,
})

const list = (text: string): string[] =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

const cidrBlocks = z
  .string()
  .transform(list)
  .pipe(z.array(z.string().refine(isCidr, 'CIDR blocks such as 10.1.0.0/16')).max(100))
  .default([])

/**
 * The only hyphen is at the end, so that no prefix begins with another one. The categories of our streams are not allowed, because the streams of a
 * service without a prefix would then count as streams of a service with this prefix.
 */
export const eventLogPrefix =
  /^(?!(?:ledger|reference|key|pricebook|profile|pixel|operator|checkpoint|rerate|installation)-)[a-z][a-z0-9]{0,29}-$/
export const eventLogPrefixRule =
  'lower-case letters and digits with a hyphen at the end, such as enrichment-, but not a category of streams, such as ledger- or key-'

const secretKey = z.string().min(32, 'at least 32 characters')

const variables = z.object({
  API_PORT: port.default(3000),
  DASHBOARD_PORT: port.default(3001),
  HOST: z.string().min(1).default('127.0.0.1'),
  METRICS_PORT: port.optional(),
  METRICS_HOST: z.string().min(1).default('127.0.0.1'),
  TRUSTED_PROXIES: z
    .string()
    .transform(list)
    .pipe(
      z
        .array(
          z
            .string()
            .refine(
              isProxyBlock,
              'addresses or CIDR blocks of the proxies, such as 10.1.0.4 or 10.1.0.0/28; never all addresses',
            ),
        )
        .max(100),
    )
    .default([]),
  TLS_CERT: z.string().min(1).optional(),
  TLS_KEY: z.string().min(1).optional(),
  INSECURE_COOKIES: z.enum(['0', '1']).default('0'),
  API_URL: publicOrigin('where partners reach the API, such as https://api.example.com').optional(),
  DASHBOARD_URL: publicOrigin(
    'where people open the dashboard, such as https://staff.example.com',
  ).optional(),
  OIDC_ISSUER: providerIssuer.optional(),
  OIDC_CLIENT_ID: z.string().min(1).max(500).optional(),
  OIDC_CLIENT_SECRET: z.string().min(1).max(4_096).optional(),
  OIDC_NAME_CLAIM: claimName.default('email'),
  DASHBOARD_IDLE_MINUTES: whole(
    { min: 5, max: 720 },
    'whole minutes from 5 to 720, the length of a sign-in',
  ).default(60),
  DASHBOARD_SECOND_FACTOR: z.enum(['optional', 'admins', 'all']).default('optional'),
  DATA_DIR: z.string().min(1).default('.data'),
  KEY_DIR: z.string().min(1).optional(),
  DATABASE_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\//, 'a URL such as postgres://user:password@host:5432/database')
    .refine(credentialsEncoded, credentialsRule)
    .refine(hasOneHost, oneHostRule)
    .refine(databaseReadable, databaseRule)
    .optional(),
  DATABASE_MIGRATION_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\//, 'a URL such as postgres://owner:password@host:5432/database')
    .refine(credentialsEncoded, credentialsRule)
    .refine(hasOneHost, oneHostRule)
    .refine(databaseReadable, databaseRule)
    .optional(),
  EVENT_LOG_URL: z
    .string()
    .regex(
      /^(esdb|kurrentdb)(\+discover)?:\/\//,
      'a connection string such as esdb://user:password@host:2113?tls=true',
    )
    .refine(credentialsEncoded, credentialsRule)
    .optional(),
  EVENT_LOG_PREFIX: z.string().regex(eventLogPrefix, eventLogPrefixRule).optional(),
  // Only for "event-log copy" and "event-log prepare".
  EVENT_LOG_FROM: z.string().refine(credentialsEncoded, credentialsRule).optional(),
  EVENT_LOG_TO: z.string().refine(credentialsEncoded, credentialsRule).optional(),
  EVENT_LOG_ADMIN_URL: z.string().refine(credentialsEncoded, credentialsRule).optional(),
  EVENT_LOG_USER_PASSWORD: z.string().min(12, 'at least 12 characters').max(200).optional(),
  // Only for the command line, where they determine the actor.
  OPERATOR_TOKEN: z.string().max(200).optional(),
  OPERATOR: z.string().max(200).optional(),
  TWO_PERSON: z.enum(['on', 'off']).optional(),
  REDIS_URL: z
    .string()
    .refine(credentialsEncoded, credentialsRule)
    .refine(
      (text) => /^rediss?:\/\//.test(text) && URL.canParse(text),
      'a URL such as redis://user:password@host:6379/0',
    )
    .optional(),
  ROLES: z
    .string()
    .transform(list)
    .pipe(z.array(roleName).min(1))
    .default(['api', 'dashboard', 'projector', 'jobs']),
  SECRET_KEY: secretKey.optional(),
  SECRET_KEY_NEW: secretKey.optional(),
  GEOIP_CITY_DB: z.string().transform(list).pipe(z.array(z.string()).min(1).max(2)).optional(),
  DNS_SERVERS: z
    .string()
    .transform(list)
    .pipe(
      z
        .array(
          z.string().refine(isServer, 'IP addresses, each with an optional port, such as 127.0.0.1:5353'),
        )
        .min(1)
        .max(3, 'at most three servers'),
    )
    .optional(),
  SMTP_PORT: portFrom(1).default(25),
  SMTP_HELO: z
    .string()
    .regex(
      /^([A-Za-z0-9.-]{1,253}|\[[0-9A-Za-z:.]{1,60}\])$/,
      'the host name in the reverse DNS of this machine',
    )
    .optional(),
  SMTP_MAIL_FROM: z
    .string()
    .regex(/^<?[\x21-\x3b\x3d\x3f-\x7e]{0,254}>?$/, 'an e-mail address, or <> for none')
    .default('<>'),
  EMAIL_PROBE: z.enum(['on', 'off']).default('on'),
  SMTP_ALLOW: cidrBlocks,
  EGRESS_ALLOW: cidrBlocks,
  PROFILE_PROVIDER: z.enum(['dataset', 'http']).default('dataset'),
  PROFILE_HTTP_URL: z
    .string()
    .regex(/^https?:\/\//, 'a URL with {lid} or {urn} in it')
    .optional(),
  PROFILE_HTTP_KEY: z.string().min(1).max(4_096).optional(),
  PROFILE_HTTP_MAPPING: z.string().min(1).optional(),
  PROFILE_HTTP_TIMEOUT_MS: whole(
    { min: 100, max: 8_000 },
    'milliseconds from 100 to 8000, the time limit of a call',
  ).default(8_000),
  PROFILE_FETCHES_MAX: whole({ min: 1, max: 9_999 }, 'the maximum in progress, from 1 to 9999').default(100),
  PROFILE_DOMAIN: z
    .string()
    .regex(/^[a-z0-9-]+(\.[a-z0-9-]+)+$/, 'a domain such as profnet.com')
    .optional(),
  PROFILE_URN_PREFIX: z
    .string()
    .regex(/^[a-z0-9]+(:[a-z0-9]+)*$/, 'such as urn:profnet')
    .optional(),
  COMPANY_HOME_PAGES: z.enum(['on', 'off']).default('off'),
  OTEL_EXPORTER_OTLP_ENDPOINT: z
    .string()
    .refine(
      (text) => /^https?:\/\//.test(text) && URL.canParse(text) && !/[?#]/.test(text),
      'the URL of a collector, such as http://127.0.0.1:4318; /v1/traces is added',
    )
    .optional(),
  OTEL_EXPORTER_OTLP_HEADERS: z
    .string()
    .regex(
      /^[\w.~!#$%&'*+^`|-]+=[\x21-\x2b\x2d-\x7e]+(,[\w.~!#$%&'*+^`|-]+=[\x21-\x2b\x2d-\x7e]+)*$/,
      'name=value, several separated by commas',
    )
    .optional(),
  OTEL_TRACES_SAMPLER_ARG: z
    .string()
    .refine((text) => /^(0|1|0?\.\d{1,9}|1\.0+)$/.test(text), 'the share of traces to record, from 0 to 1')
    .transform(Number)
    .default(1),
  PROMETHEUS_URL: z
    .string()
    .refine(
      (text) => /^https?:\/\//.test(text) && URL.canParse(text) && !/[?#@]/.test(text),
      'the URL of a Prometheus without user and password, such as http://10.1.0.9:9090',
    )
    .optional(),
  LOG_LEVEL: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
})

export type Config = Readonly<z.infer<typeof variables>>

/** All variables that this service reads. */
export const variableNames: readonly string[] = Object.keys(variables.shape)

/** Whether price books and re-rates need a second person. By default, they do unless the database is embedded. */
export const twoPersonOf = ({ TWO_PERSON, DATABASE_URL }: Config): boolean =>
  TWO_PERSON === undefined ? DATABASE_URL !== undefined : TWO_PERSON === 'on'

const secretVariables = new Set([
  'SECRET_KEY',
  'SECRET_KEY_NEW',
  'DATABASE_URL',
  'DATABASE_MIGRATION_URL',
  'EVENT_LOG_URL',
  'EVENT_LOG_FROM',
  'EVENT_LOG_TO',
  'EVENT_LOG_ADMIN_URL',
  'EVENT_LOG_USER_PASSWORD',
  'OPERATOR_TOKEN',
  'OIDC_CLIENT_SECRET',
  'REDIS_URL',
  'PROFILE_HTTP_KEY',
  // The URL can contain a password.
  'OTEL_EXPORTER_OTLP_ENDPOINT',
  'OTEL_EXPORTER_OTLP_HEADERS',
  // A user and password in this URL are refused, and must not be shown in the error.
  'PROMETHEUS_URL',
])

/** The environment is invalid. `message` contains every invalid variable, but never the value of a secret. */
export class ConfigError extends Error {
  override name = 'ConfigError'
}

/** Groups of variables of which either all or none must be set. */
const together = [
  ['TLS_CERT', 'TLS_KEY'],
  ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'],
] as const

/**
 * Refuses a setting of earlier releases that made a process start further processes. If it were ignored, such a deployment would run with only part
 * of its capacity.
 */
const refuseForks = (processes: string | undefined): void => {
  if (processes !== undefined && processes !== '1')
    throw new ConfigError(
      `API_PROCESSES: it is "${processes.slice(0, 100)}", but a process no longer starts other processes. Remove this variable and start several processes ` +
        'behind a proxy: src/guides/deployment.md, "How do I run several api processes?"',
    )
}

/** Parses the environment. Empty variables count as not set. Throws `ConfigError`. */
export const parseConfig = (environment: Readonly<Record<string, string | undefined>>): Config => {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''),
  )
  refuseForks(given.API_PROCESSES)
  const parsed = variables.safeParse(given)
  for (const names of parsed.success ? together : []) {
    const [missing, set] = [false, true].map((is) => names.find((name) => name in given === is))
    if (missing !== undefined && set !== undefined)
      throw new ConfigError(
        `${missing}: not set, but ${set} is; set all of ${names.join(', ')}, or none of them`,
      )
  }
  if (!parsed.success)
    throw new ConfigError(
      // Reports only one fault for each variable.
      [...new Map(parsed.error.issues.toReversed().map(({ path, message }) => [String(path[0]), message]))]
        .map(([name, message]) => {
          const was = secretVariables.has(name) ? '' : ` (it is "${(given[name] ?? '').slice(0, 100)}")`
          return `${name}: ${message}${was}`
        })
        .toReversed()
        .join('\n'),
    )
  return Object.freeze(parsed.data)
}
