import { cli, cliJson, eventually } from './service.ts'

/**
 * Uses an installation as people would: calls of every capability, prices, corrections, people imported and erased, users,
 * tokens, webhooks and keys. The record of this use is plain data, so that the installation can be checked against it after a
 * move or an upgrade.
 */

export type Variables = Readonly<Record<string, string>>

export type Call = {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly host: 'api' | 'dashboard'
  readonly path: string
  readonly body: object | null
  readonly idempotencyKey: string | null
}
export type AnsweredCall = Call & { readonly status: number; readonly answer: unknown }

export type Use = {
  readonly organizationId: string
  readonly otherId: string
  readonly apiKey: string
  /** A key in its grace period after a rotation. */
  readonly rotatedKey: string
  readonly revokedKey: string
  readonly limitedKey: string
  readonly users: readonly { readonly name: string; readonly password: string }[]
  readonly operatorToken: string
  readonly webhookSecret: string
  readonly erasedPerson: string
  /** Calls with their answers. Repeating a call with its Idempotency-Key returns its answer again. */
  readonly calls: readonly AnsweredCall[]
  readonly months: readonly string[]
  readonly endedAt: string
}

export type Hosts = { readonly apiUrl: string; readonly dashboardUrl: string }

type Keyed = { readonly status: number; readonly headers: Headers; readonly answer: unknown }

const callMaxMs = 60_000

export const make = async (hosts: Hosts, apiKey: string, call: Call): Promise<Keyed> => {
  const response = await fetch(`${call.host === 'api' ? hosts.apiUrl : hosts.dashboardUrl}${call.path}`, {
    method: call.method,
    headers: {
      'x-api-key': apiKey,
      ...(call.body === null ? {} : { 'content-type': 'application/json' }),
      ...(call.idempotencyKey === null ? {} : { 'idempotency-key': call.idempotencyKey }),
    },
    ...(call.body === null ? {} : { body: JSON.stringify(call.body) }),
    signal: AbortSignal.timeout(callMaxMs),
  })
  const text = await response.text()
  const isJson = /^application\/json(;|$)/.test(response.headers.get('content-type') ?? '')
  return { status: response.status, headers: response.headers, answer: isJson ? JSON.parse(text) : text }
}

export const post = (path: string, body: object, idempotencyKey: string | null = null): Call => ({
  method: 'POST',
  host: 'api',
  path,
  body,
  idempotencyKey,
})
export const get = (path: string, host: Call['host'] = 'api'): Call => ({
  method: 'GET',
  host,
  path,
  body: null,
  idempotencyKey: null,
})

export const erasedPerson = 'zoervina-quillfeather-81'
const keptPerson = 'ottoline-grackle-82'

/** The data to import: lines about people and about companies. */
export const people = (): string =>
  [
    {
      lid: erasedPerson,
      urn: 'urn:profnet:person:8172635445362718',
      firstname: 'Zörvina',
      lastname: 'Quillfeather',
      headline: 'Keeper of "small" lamps',
    },
    {
      lid: keptPerson,
      urn: 'urn:profnet:person:9182736455463728',
      firstname: 'Ottoline',
      lastname: 'Grackleton',
    },
  ]
    .map((person) => `${JSON.stringify(person)}\n`)
    .join('')
export const companies = (): string =>
  `${JSON.stringify({ name: 'Glimmerhurst “Lamps” & Söhne', website: 'glimmerhurst.com', industry: 'lighting', size: '11-50', locality: 'leeds', country: 'united kingdom', founded: '1987' })}\n`

/** Calls of every capability, including refused calls. Calls that can be repeated have an Idempotency-Key. */
const calls = (): Call[] => [
  post('/v1/ip/lookup', { ip: '8.8.8.8' }, 'lookup-1'),
  post('/v1/ip/lookup', { ip: '10.0.0.1' }, 'lookup-2'),
  post('/v1/ip/lookup', { ip: 'no address' }, 'lookup-3'),
  post('/v1/email/validate', { email: 'ada@glimmerhurst.com', include_company_data: true }, 'validate-1'),
  post('/v1/email/validate', { email: 'not an address' }, 'validate-2'),
  post('/v1/profnet/profile', { id: erasedPerson }),
  post('/v1/profnet/profile', { id: keptPerson }, 'profile-2'),
  post('/v1/profnet/profile', { id: 'nobody-knows-83' }, 'profile-3'),
  post('/pixel/limit', { domain: 'example.com', period: 'month', number: 3 }),
  post('/pixel/limit', { domain: 'example.net', period: 'day', number: 3 }),
  { ...post('/pixel/limit', { domain: 'example.net', period: 'day' }), method: 'DELETE' },
  post('/pixel/block', { domain: 'example.org' }),
  post('/pixel/block', { domain: 'example.edu' }),
  { ...post('/pixel/block', { domain: 'example.edu' }), method: 'DELETE' },
  post('/pixel/decide', { url: 'https://example.com/a', hit_id: 'hit-1' }),
  post('/pixel/decide', { url: 'https://example.com/b', hit_id: 'hit-2' }),
  post('/pixel/decide', { url: 'https://example.org/', hit_id: 'hit-3' }),
  get('/whoami', 'dashboard'),
  get('/v1/balance'),
  get('/v1/usage'),
  get('/v1/ledger/export'),
]

type Files = { readonly people: string; readonly companies: string; readonly prices: string }

/** The content of the proposed price file. */
export const prices = (): string => JSON.stringify([{ rule: 'ip_lookup.located', amount: '2' }])

/** Operations that normally need a command by one person and an approval by another. Here one person is enough. */
const money = async (
  run: <Answer>(...args: string[]) => Promise<Answer>,
  { organizationId, requestId, file }: { organizationId: string; requestId: string; file: string },
): Promise<void> => {
  // This date is in the future even for a copy that is stored for years.
  const soon = '2099-01-01T00:00:00.000Z'
  const begin = new Date(Date.now() - 3_600_000).toISOString()
  await run(
    'credits',
    'grant',
    organizationId,
    '7.5',
    '--expires-at',
    soon,
    '--priority',
    '1',
    '--reference',
    'po-1',
  )
  const { grant_id: grant } = await run<{ grant_id: string }>('credits', 'grant', organizationId, '3')
  await run('credits', 'void', organizationId, grant, '--reason', 'granted twice')
  await run(
    'credits',
    'adjust',
    organizationId,
    '-1.25',
    '--reason',
    'a manual lookup',
    '--reference',
    'adj-1',
  )
  await run('credits', 'refund', requestId, '--reason', 'the address was ours')
  await run('credits', 'threshold', organizationId, '999999')
  const override = await run<{ override_id: string }>(
    'price',
    'override',
    organizationId,
    '--sku',
    'ip_lookup',
    '--amount',
    '0.5',
    '--effective-from',
    soon,
  )
  await run('price', 'override', organizationId, '--withdraw', override.override_id)
  await run('price', 'override', organizationId, '--sku', 'email_validation', '--amount', '0.75')
  await run('price', 'propose', file, '--from', soon, '--reason', 'a year has passed')
  await run('price', 'withdraw', 'p1')
  await run('price', 'propose', file, '--from', soon)
  await run('price', 'approve', 'p2')
  const end = new Date().toISOString()
  const plan = (reason: string) =>
    run<{ run: string }>('rerate', 'plan', file, begin, end, '--org', organizationId, '--reason', reason)
  const { run: kept } = await plan('priced too low')
  await run('rerate', 'approve', kept)
  await run('rerate', 'apply', kept)
  const { run: left } = await plan('and again')
  await run('rerate', 'abandon', left, '--reason', 'a mistake')
}

/** Uses every part of an installation that has TWO_PERSON off. `variables` is the environment of the command line. */
export const useInstallation = async (hosts: Hosts, variables: Variables, files: Files): Promise<Use> => {
  const run = <Answer>(...args: string[]): Promise<Answer> => cliJson<Answer>([...args, '--yes'], variables)
  const monthNow = (): string => new Date().toISOString().slice(0, 7)
  const began = monthNow()
  const issue = async (organizationId: string, ...args: string[]) =>
    run<{ api_key: string; api_key_id: string }>('key', 'issue', organizationId, ...args)
  const allowed = 'email_validation,ip_lookup,profnet_scraping,pixel_control,ledger_read'
  const { organization_id: organizationId } = await run<{ organization_id: string }>(
    'org',
    'create',
    'Acme “Söhne”',
  )
  const { organization_id: otherId } = await run<{ organization_id: string }>('org', 'create', 'Other')
  await run('credits', 'grant', organizationId, '1000')
  const key = await issue(organizationId, '--permissions', allowed)
  const rotated = await issue(organizationId)
  await run('key', 'rotate', rotated.api_key_id, '--grace', '89d')
  const revoked = await issue(organizationId)
  const limited = await issue(organizationId)
  await run('key', 'limits', limited.api_key_id, '--requests-per-minute', '1')
  await run('companies', 'import', files.companies)
  await run('profiles', 'import', files.people)

  const answered: AnsweredCall[] = []
  for (const call of calls()) {
    // Within a second, this process accepts a key that another process has issued.
    const { status, answer } = await eventually(async () => {
      const made = await make(hosts, key.api_key, call)
      return made.status === 401 ? undefined : made
    })
    answered.push({ ...call, status, answer })
  }
  for (let i = 0; i < 3; i++) await make(hosts, limited.api_key, post('/v1/ip/lookup', { ip: '9.9.9.9' }))
  await make(hosts, revoked.api_key, post('/v1/ip/lookup', { ip: '9.9.9.9' }))
  const broke = await issue(otherId)
  await make(hosts, broke.api_key, post('/v1/ip/lookup', { ip: '8.8.8.8' }))
  await run('key', 'revoke', revoked.api_key_id, '--reason', 'leaked')
  await run('profiles', 'erase', erasedPerson, '--note', 'request 17')

  const first = answered[0]?.answer as { request_id: string }
  await money(run, { organizationId, requestId: first.request_id, file: files.prices })
  const { password } = await run<{ password: string }>('user', 'create', 'ada', '--role', 'admin')
  const token = await run<{ token: string; token_id: string }>('user', 'token', 'ada')
  const old = await run<{ token_id: string }>('user', 'token', 'ada')
  await run('user', 'token', 'ada', '--revoke', '--id', old.token_id)
  const webhook = await run<{ secret: string }>(
    'webhook',
    'create',
    organizationId,
    'https://hooks.example.invalid/hooks',
    '--events',
    'balance.low',
  )
  const ended = await run<{ webhook_id: string }>(
    'webhook',
    'create',
    '--url',
    'https://127.0.0.1:9/mine',
    '--events',
    'checkpoint',
  )
  await run('webhook', 'delete', ended.webhook_id)
  await run('ledger', 'reconcile')
  await run('projection', 'rebuild', 'key_usage', '--reason', 'to have done it')
  await cli(['event-log', 'checkpoint'], variables)
  return {
    organizationId,
    otherId,
    apiKey: key.api_key,
    rotatedKey: rotated.api_key,
    revokedKey: revoked.api_key,
    limitedKey: limited.api_key,
    users: [{ name: 'ada', password }],
    operatorToken: token.token,
    webhookSecret: webhook.secret,
    erasedPerson,
    calls: answered,
    months: [...new Set([began, monthNow()])],
    endedAt: new Date().toISOString(),
  }
}

/** The state that an operator and a partner can see, without values that change over time. */
export const observe = async (
  variables: Variables,
  { organizationId, otherId, months }: Use,
): Promise<object> => {
  const run = (...args: string[]): Promise<unknown> => cliJson(args, variables)
  const statements: unknown[] = []
  for (const month of months)
    for (const organization of [organizationId, otherId])
      statements.push(await run('ledger', 'statement', organization, month))
  return {
    organizations: await run('org', 'list'),
    balances: [await run('credits', 'balance', organizationId), await run('credits', 'balance', otherId)],
    lots: await run('credits', 'lots', organizationId),
    keys: await run('key', 'list', organizationId),
    statements,
    prices: await run('price', 'show'),
    overrides: await run('price', 'overrides'),
    // The re-rates are sorted, because their order differs between releases.
    rerates: ((await run('rerate', 'list')) as { run: string }[]).toSorted((a, b) =>
      a.run < b.run ? -1 : 1,
    ),
    tokens: await run('user', 'tokens'),
    webhooks: await run('webhook', 'list'),
    epochKeys: await run('epoch-key', 'list'),
    company: await run('companies', 'show', 'glimmerhurst.com'),
  }
}
