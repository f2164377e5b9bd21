import { describe, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'

test.each([undefined, '', '1'])('API_PROCESSES %s changes nothing', (text) => {
  expect(parseConfig({ API_PROCESSES: text })).toEqual(parseConfig({}))
})

test.each(['2', 'auto'])(
  'API_PROCESSES %s prevents the start, and the error names what replaces it',
  (text) => {
    expect(() => parseConfig({ API_PROCESSES: text })).toThrow(ConfigError)
    expect(() => parseConfig({ API_PROCESSES: text })).toThrow(
      `API_PROCESSES: it is "${text}", but a process no longer starts other processes. Remove this variable and start several processes behind a proxy`,
    )
  },
)

test.each(['abc', '-1', '65536', '1.5', ' 80'])('API_PORT=%s is not a port number', (text) => {
  expect(() => parseConfig({ API_PORT: text })).toThrow(
    `API_PORT: a port number from 0 to 65535 (it is "${text}")`,
  )
  expect(parseConfig({ API_PORT: '0' }).API_PORT).toBe(0)
})

describe('an identity provider', () => {
  const whole = {
    OIDC_ISSUER: 'https://login.example.com/tenant',
    OIDC_CLIENT_ID: 'dashboard',
    OIDC_CLIENT_SECRET: 'not to be shown',
  }

  test('needs three variables; user names are e-mail addresses unless another claim is configured', () => {
    expect(parseConfig(whole)).toMatchObject({ ...whole, OIDC_NAME_CLAIM: 'email' })
    expect(parseConfig({}).OIDC_ISSUER).toBeUndefined()
    expect(parseConfig({ ...whole, OIDC_NAME_CLAIM: 'upn' }).OIDC_NAME_CLAIM).toBe('upn')
  })

  test.each(['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'])('without %s stops the start', (name) => {
    expect(() => parseConfig({ ...whole, [name]: '' })).toThrow(
      new RegExp(`^${name}: not set, but OIDC_\\w+ is;`),
    )
  })

  test.each([
    'http://login.example.com',
    'http://127.0.0.1.example.com',
    'https://login.example.com/?tenant=1',
    'https://login.example.com/#x',
    'https://user:secret@login.example.com',
    'login.example.com',
    'ftp://login.example.com',
  ])('is not %s', (issuer) => {
    expect(() => parseConfig({ ...whole, OIDC_ISSUER: issuer })).toThrow('OIDC_ISSUER: the https:// URL')
  })

  test.each(['http://127.0.0.1:8080', 'http://localhost/realm', 'http://[::1]:99'])(
    'may be %s, which never leaves the machine',
    (issuer) => {
      expect(parseConfig({ ...whole, OIDC_ISSUER: issuer }).OIDC_ISSUER).toBe(issuer)
    },
  )

  test('does not reveal its secret in errors', () => {
    const secret = 'x'.repeat(4_097)
    expect(() => parseConfig({ ...whole, OIDC_CLIENT_SECRET: secret })).toThrow(
      /^OIDC_CLIENT_SECRET: [^x]*x?[^x]*$/,
    )
  })
})

test.each([
  ['https://staff.example.com/', 'https://staff.example.com'],
  ['http://127.0.0.1:3001', 'http://127.0.0.1:3001'],
])('DASHBOARD_URL %s is %s', (text, origin) => {
  expect(parseConfig({ DASHBOARD_URL: text }).DASHBOARD_URL).toBe(origin)
})

test.each([
  'staff.example.com',
  'https://staff.example.com/path',
  'https://a@b',
  'https://x?y',
  'javascript:alert(1)',
])('DASHBOARD_URL %s stops the start', (text) => {
  expect(() => parseConfig({ DASHBOARD_URL: text })).toThrow('DASHBOARD_URL: where people open the dashboard')
})

test('a SECRET_KEY that is too short is refused and not shown', () => {
  expect(() => parseConfig({ SECRET_KEY: 'short word' })).toThrow(
    /^(?!.*short word).*SECRET_KEY: at least 32 characters/s,
  )
})

describe('a password in a URL', () => {
  const urls = {
    DATABASE_URL: (password: string) => `postgres://service:${password}@db.example:5432/enrichment`,
    DATABASE_MIGRATION_URL: (password: string) => `postgres://owner:${password}@db.example:5432/enrichment`,
    REDIS_URL: (password: string) => `redis://:${password}@redis.example:6379`,
    EVENT_LOG_URL: (password: string) => `esdb://service:${password}@log.example:2113?tls=true`,
    EVENT_LOG_ADMIN_URL: (password: string) => `esdb://admin:${password}@log.example:2113?tls=true`,
    EVENT_LOG_FROM: (password: string) => `esdb://admin:${password}@log.example:2113?tls=true`,
    EVENT_LOG_TO: (password: string) => `postgres://owner:${password}@db.example/enrichment`,
  }

  test.each(Object.entries(urls))(
    'of %s is refused if it has to be encoded, and is not shown',
    (name, url) => {
      for (const character of ['/', '@', '#', '?', '%', ' ', '[']) {
        let message = ''
        try {
          parseConfig({ [name]: url(`left${character}right`) })
        } catch (error) {
          message = String(error)
        }
        expect([character, message]).toEqual([character, expect.stringContaining(`${name}: `)])
        expect(message).toContain('%2F')
        expect(message).not.toMatch(/left|right/)
      }
      expect(parseConfig({ [name]: url(encodeURIComponent('left/@#?%right')) })).toMatchObject({})
      expect(parseConfig({ [name]: url('0123abc') })).toMatchObject({})
    },
  )
})

test.each(['a%3Fb', 'a%23b', 'a#b'])('a database name that the driver cannot read is refused: %s', (name) => {
  const url = `postgres://user:s%3Fs%23@db/${name}?application_name=x`
  expect(() => parseConfig({ DATABASE_URL: url })).toThrow(
    'DATABASE_URL: a URL of a database whose name contains neither ? nor #',
  )
  const readable = 'postgres://user:s%3Fs%23@db/a%2Fb?application_name=a%23b'
  expect(parseConfig({ DATABASE_URL: readable }).DATABASE_URL).toBe(readable)
})

test.each(['DATABASE_URL', 'DATABASE_MIGRATION_URL'])('%s has one host', (name) => {
  for (const hosts of ['one,two', 'one:5432,two:5433'])
    expect(() =>
      parseConfig({ [name]: `postgres://user:secret@${hosts}/enrichment?target_session_attrs=read-write` }),
    ).toThrow(`${name}: a URL with one host`)
  expect(
    parseConfig({ [name]: 'postgres://user:se,cret@[::1]:5432/one,two?options=-c%20a,b' }),
  ).toMatchObject({})
})
