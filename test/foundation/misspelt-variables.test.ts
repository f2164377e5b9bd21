import { describe, expect, test } from 'vitest'
import { variableNames } from '../../src/config.ts'
import { misspeltText, misspeltVariables } from '../../src/foundation/misspelt-variables.ts'

const meantOf = (name: string): string | null | undefined => misspeltVariables({ [name]: 'x' })[0]?.meant

describe('a variable similar to one of ours', () => {
  test.each([
    ['API_PORTS', 'API_PORT'],
    ['DATABSE_URL', 'DATABASE_URL'],
    ['DATABASE-URL', 'DATABASE_URL'],
    ['database_url', 'DATABASE_URL'],
    ['SECRETKEY', 'SECRET_KEY'],
    ['REDIS_URI', 'REDIS_URL'],
    ['ROLE', 'ROLES'],
    ['TRUSTED_PROXY', null],
    ['EVENT_LOG_UR', 'EVENT_LOG_URL'],
    ['EVENT_LOG_ADDRESS', null],
  ])('%s is reported, with %s as a suggestion', (name, meant) => {
    expect(meantOf(name)).toBe(meant)
  })

  test('is reported by name only, because its value may be a secret', () => {
    const [one] = misspeltVariables({ SECRET_KEYS: 'geheimnis' })
    expect(one).toEqual({ name: 'SECRET_KEYS', meant: 'SECRET_KEY' })
    expect(misspeltText({ name: 'SECRET_KEYS', meant: 'SECRET_KEY' })).toBe(
      'SECRET_KEYS is not a variable of this service, so it is ignored; did you mean SECRET_KEY?',
    )
  })

  test('without a value is not reported', () => {
    expect(misspeltVariables({ API_PORTS: '', DATABSE_URL: undefined })).toEqual([])
  })

  test('is reported among many, twenty at most', () => {
    const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`EVENT_LOG_${i}`, 'x']))
    expect(misspeltVariables(many)).toHaveLength(20)
  })
})

test('no variable of ours is reported', () => {
  expect(misspeltVariables(Object.fromEntries(variableNames.map((name) => [name, 'x'])))).toEqual([])
})

test.each([
  // A shell, npm, CI, systemd, containers and Kubernetes set these variables.
  'PATH',
  'HOSTNAME',
  'NODE_VERSION',
  'npm_config_cache',
  'PORT',
  'LISTEN_FDS',
  'PGHOST',
  'POSTGRES_PASSWORD',
  'DATABASE_PASSWORD',
  'OTEL_EXPORTER_OTLP_ENDPOINT',
  'API_SERVICE_HOST',
  'API_PORT_3000_TCP_ADDR',
  'METRICS_SERVICE_PORT',
])('%s of other programs is not reported', (name) => {
  expect(misspeltVariables({ [name]: 'x' })).toEqual([])
})
