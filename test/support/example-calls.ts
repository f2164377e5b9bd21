/** The calls that produce the example answers in the OpenAPI document, in order. Most use a test key, so they can be repeated. */
import { setTimeout as sleep } from 'node:timers/promises'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import type { Examples, RecordedAnswers } from '../../src/call/examples.ts'
import { permission } from '../../src/events/capabilities.ts'
import { type Answer, type House, type Partner, type Question, send } from './house.ts'

export type RecordedExamples = Examples & { readonly answers: RecordedAnswers }

type Recording = {
  readonly answers: Record<string, Record<string, Record<string, { request: unknown; answer: unknown }>>>
  readonly errors: Record<string, unknown>
}

type Asking = {
  readonly house: House
  /** Like `house`, but makes no call again. */
  readonly direct: House
  readonly tester: Partner
  readonly recording: Recording
  /** Records an operation's answer under a name. */
  readonly show: (operation: string, name: string, path: string, body?: object) => Promise<Answer>
  readonly get: (operation: string, name: string, path: string) => Promise<Answer>
}

const json = { 'content-type': 'application/json' }

const contentOf = ({ text, body, headers }: Answer): unknown =>
  headers.get('content-type')?.startsWith('application/json') ? body : text

const repeatsMax = 20
const pauseMs = 250

/** On a busy machine, a call can be answered with 503, which is no example. It cost nothing, so it is made again. */
const repeated = async <Given extends Answer>(ask: () => Promise<Given>): Promise<Given> => {
  for (let repeats = 0; ; repeats++) {
    const answer = await ask()
    if (answer.status !== 503) return answer
    if (repeats === repeatsMax) throw new Error(`a call was always answered with ${answer.text}`)
    await sleep(pauseMs)
  }
}

const patient = (house: House): House => ({
  ...house,
  ask: (...asked) => repeated(() => house.ask(...asked)),
  post: (...asked) => repeated(() => house.post(...asked)),
  lookup: (...asked) => repeated(() => house.lookup(...asked)),
  whoami: (...asked) => repeated(() => house.whoami(...asked)),
})

export const recordExamples = async (given: House): Promise<RecordedExamples> => {
  const house = patient(given)
  const { organizationId } = await house.partner()
  const opened = await openTestOrganization(house.foundation, { organizationId, actor: 'cli' })
  const tester = await house.key(opened, { permissions: permission.options })
  const recording: Recording = { answers: {}, errors: {} }
  const keep = (operation: string, name: string, request: unknown, answer: Answer): Answer => {
    const byStatus = recording.answers[operation] ?? {}
    const byName = byStatus[answer.status] ?? {}
    byName[name] = { request, answer: contentOf(answer) }
    recording.answers[operation] = { ...byStatus, [answer.status]: byName }
    return answer
  }
  const asking: Asking = {
    house,
    direct: given,
    tester,
    recording,
    show: async (operation, name, path, body = {}) =>
      keep(operation, name, body, await house.post(tester, path, body)),
    get: async (operation, name, path) =>
      keep(operation, name, null, await house.ask(tester, { method: 'GET', path })),
  }
  const charged = await askCapabilities(asking)
  await askPixels(asking)
  await askAccount(asking, String(charged.body.request_id))
  const whoami = await house.whoami(tester)
  keep('whoami', 'test_key', null, whoami)
  const limited = await askErrors(asking)
  return { ...recording, headers: await headersOf(asking, charged, limited) }
}

const askCapabilities = async ({ show }: Asking): Promise<Answer> => {
  await show('lookUpIp', 'located', '/v1/ip/lookup', { ip: '192.0.2.1' })
  await show('lookUpIp', 'located_ipv6', '/v1/ip/lookup', { ip: '2001:db8::1' })
  await show('lookUpIp', 'not_located', '/v1/ip/lookup', { ip: '192.0.2.104' })
  const email = '/v1/email/validate'
  const enriched = { email: 'accepted@mail.test', include_company_data: true }
  const charged = await show('validateEmail', 'valid_with_company', email, enriched)
  for (const word of ['greylisted', 'disposable', 'mailbox_not_found', 'catch_all'])
    await show('validateEmail', word, email, { email: `${word}@mail.test` })
  await show('validateEmail', 'malformed', email, { email: 'jane@@example' })
  const profile = '/v1/profnet/profile'
  await show('retrieveProfile', 'cached', profile, { id: 'test-person' })
  await show('retrieveProfile', 'fresh', profile, { id: 'urn:profnet:person:1', cached: false })
  await show('retrieveProfile', 'deleted', profile, { id: 'test-deleted' })
  return charged
}

const askPixels = async ({ house, tester, recording, show, get }: Asking): Promise<void> => {
  const limit = { domain: 'example.com', period: 'day', number: 5_000 }
  await show('setPixelLimit', 'set', '/pixel/limit', limit)
  await show('blockPixel', 'blocked', '/pixel/block', { domain: 'example.org' })
  await get('listPixelLimits', 'limits', '/pixel/limit')
  await get('listPixelBlocks', 'blocks', '/pixel/block')
  await show('decidePixel', 'allowed', '/pixel/decide', {
    url: 'https://shop.example.com/cart',
    hit_id: 'order-17',
  })
  await show('decidePixel', 'blocked', '/pixel/decide', { url: 'https://example.org/' })
  for (const [operation, path, body] of [
    ['removePixelLimit', '/pixel/limit', { domain: 'example.com', period: 'day' }],
    ['unblockPixel', '/pixel/block', { domain: 'example.org' }],
  ] as const) {
    const answer = await house.ask(tester, { method: 'DELETE', path, body, headers: json })
    recording.answers[operation] = { [answer.status]: { removed: { request: body, answer: answer.body } } }
  }
}

const askAccount = async ({ house, get }: Asking, requestId: string): Promise<void> => {
  const today = new Date().toISOString().slice(0, 10)
  await get('getBalance', 'balance', '/v1/balance')
  await house.projected()
  await get('getUsage', 'by_capability', `/v1/usage?from=${today}&to=${today}&group_by=capability`)
  await get('explainCall', 'charged', `/v1/calls/${requestId}`)
  await get('getReceipt', 'not_covered', `/v1/calls/${requestId}/receipt`)
  await house.foundation.checkpoints.make()
  await get('getReceipt', 'covered', `/v1/calls/${requestId}/receipt`)
  await get('exportLedger', 'two_events', '/v1/ledger/export?max=2')
}

const askErrors = async ({ house, direct, tester, recording }: Asking): Promise<Answer> => {
  const lookup = '/v1/ip/lookup'
  const { organizationId } = tester
  const keep = (name: string, answer: Answer): Answer => {
    recording.errors[name] = answer.body
    return answer
  }
  const ask = (name: string, question: Question) => house.ask(tester, question).then((one) => keep(name, one))
  const post = (name: string, path: string, body: unknown, partner = tester, headers = {}) =>
    house.post(partner, path, body, headers).then((one) => keep(name, one))
  keep('AUTH_001', await send(`${house.apiUrl}${lookup}`, { headers: json, body: { ip: '192.0.2.1' } }))
  const narrow = await house.key(organizationId, { permissions: ['email_validation'] })
  await post('AUTH_002', lookup, { ip: '192.0.2.1' }, narrow)
  const far = await house.key(organizationId, { allowedCidrs: ['203.0.113.0/24'] })
  await post('AUTH_003', lookup, { ip: '192.0.2.1' }, far)
  await post('REQ_001', lookup, 'ip=192.0.2.1')
  await post('REQ_001_413', lookup, { ip: ' '.repeat(20_000) })
  await ask('REQ_001_415', { path: lookup, headers: { 'content-type': 'text/plain' }, body: 'x' })
  await post('REQ_002', lookup, {})
  await post('REQ_003', '/v1/email/validate', { email: 17 })
  await ask('REQ_004', { path: '/v1/ip', headers: json, body: {} })
  await ask('REQ_005', { method: 'GET', path: lookup })
  await post('IP_001', lookup, { ip: '8.8.8' })
  await post('PROFNET_001', '/v1/profnet/profile', { id: '!' })
  await post('PROFNET_002', '/v1/profnet/profile', { id: 'no-one-of-this-name' })
  await ask('CALL_001', { method: 'GET', path: '/v1/calls/01M7YKBR1318CPB17F0R6929Z4' })
  await post('CREDIT_001', lookup, { ip: '81.2.69.142' }, await house.partner({ credits: '0.5' }))
  const slow = await house.key(organizationId, { limits: { requests_per_minute: 1 } })
  await house.lookup(slow, { ip: '192.0.2.1' })
  const limited = await post('RATE_001', lookup, { ip: '192.0.2.1' }, slow)
  const once = { 'idempotency-key': 'order-1881' }
  await house.lookup(tester, { ip: '192.0.2.1' }, once)
  await post('IDEMP_001', lookup, { ip: '192.0.2.2' }, tester, once)
  // On a fast machine, the test key has already used its ten validations for this second.
  const quick = await house.key(organizationId, {
    permissions: ['email_validation'],
    limits: { email_validations_per_second: 1_000 },
  })
  for (const code of ['IDEMP_002', 'SYS_001', 'SYS_002', 'SYS_003']) {
    const body = { email: `${code.toLowerCase()}@mail.test` }
    keep(code, await direct.post(quick, '/v1/email/validate', body))
  }
  return limited
}

const headersOf = async (
  { house, tester }: Asking,
  { headers }: Answer,
  limited: Answer,
): Promise<Examples['headers']> => {
  const again = await house.lookup(tester, { ip: '192.0.2.1' }, { 'idempotency-key': 'order-1881' })
  const of = (name: string, from = headers): string => {
    const value = from.get(name)
    if (value === null) throw new Error(`an answer has no ${name}`)
    return value
  }
  return {
    RequestId: of('x-request-id'),
    CreditsCharged: of('credits-charged'),
    CreditsRemaining: of('credits-remaining'),
    RateLimitPolicy: of('ratelimit-policy'),
    RateLimit: of('ratelimit'),
    RetryAfter: of('retry-after', limited.headers),
    IdempotentReplayed: of('idempotent-replayed', again.headers),
  }
}
