/** An example of each command and query: the input that the suite sends through every interface. */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Secret, TOTP } from 'otpauth'
import pino from 'pino'
import { declarationNamed, declarations } from '../../src/administration/declarations.ts'
import type { Given } from '../../src/administration/declare.ts'
import { listCheckpoints } from '../../src/administration/event-log/checkpoints.ts'
import { longWorks, requestLongWork, takeBack } from '../../src/administration/jobs/long-work.ts'
import { priceRulesOf } from '../../src/administration/prices/price-file.ts'
import { priceOverrides, setPriceOverride } from '../../src/administration/prices/price-overrides.ts'
import { pricesAt, proposePriceBook, withdrawPrices } from '../../src/administration/prices/prices.ts'
import { approveRerate } from '../../src/administration/rerates/apply.ts'
import { planRerate, pricesNamed } from '../../src/administration/rerates/rerates.ts'
import { issueOperatorToken } from '../../src/administration/users/operator-tokens.ts'
import { setSecondFactor } from '../../src/administration/users/second-factors.ts'
import { freshTotpSecret } from '../../src/administration/users/totp.ts'
import { createUser, setDisabled } from '../../src/administration/users/user-changes.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import type { Scene } from '../dashboard/scene.ts'

/** The objects that samples can name. */
export type Things = Scene & {
  readonly grantId: string
  /** A webhook with an internal address, so every message to it is refused immediately. */
  readonly webhookId: string
  readonly pausedWebhookId: string
  /** A failed delivery of the first webhook. */
  readonly deliveryId: string
}

/** Returns the input for a scene. Each interface gets its own scene, and the scenes have equal histories. */
type Sample = (scene: Things & { readonly foundation: Foundation }) => Given | Promise<Given>

const actor = 'cli:setup'
const silent = pino({ level: 'silent' })
let people = 0

/** An unused name in a format that the suite recognizes. */
const freshName = (): string => `sample-${++people}`

/** A user that a sample changes. */
const sampleUser = async ({ foundation }: { readonly foundation: Foundation }): Promise<string> => {
  const name = freshName()
  await createUser(foundation, { name, role: 'viewer', organizationId: null, actor })
  return name
}

const from = '2099-01-01T00:00:00.000Z'
const rules = [{ rule: 'ip_lookup.located', amount: '1.50' }]
const other = { actor: 'user:someone-else' }

/** Withdraws the proposals and books that are not in force, so that a sample can create them again. */
const withdrawn = async (foundation: Foundation): Promise<void> => {
  const { open, upcoming } = await pricesAt(foundation, Date.now())
  for (const name of [
    ...open.map(({ proposal }) => ({ kind: 'proposal', number: proposal }) as const),
    ...upcoming.map(({ version }) => ({ kind: 'book', number: version }) as const),
  ])
    await withdrawPrices(foundation, { name, reason: 'again', twoPerson: false, ...other })
}

/** A re-rate of the calls of the last days. One person plans it. If requested, a second person approves it. */
const planned = async (
  { organizationId }: Scene,
  foundation: Foundation,
  { approved }: { readonly approved: boolean },
): Promise<{ run: string }> => {
  const range = lastDays()
  const { proposed } = await planRerate(
    foundation,
    {
      book: await pricesNamed(foundation, { kind: 'rules', document: rules }, range),
      organizationId,
      organizations: [organizationId],
      reason: 'too cheap',
      ...range,
      ...other,
    },
    () => undefined,
  )
  const { run } = proposed
  if (approved) await approveRerate(foundation, { run, actor: 'user:a-third', twoPerson: true })
  return { run }
}

const lastDays = () => ({
  from: new Date(Date.now() - 2 * 86_400_000).toISOString(),
  to: new Date().toISOString(),
})

/** Proposes a book as a person other than the one who uses the interfaces. */
const proposed = async (foundation: Foundation): Promise<string> => {
  await withdrawn(foundation)
  const { proposal } = await proposePriceBook(foundation, {
    rulesOver: (base) => priceRulesOf(rules, { field: 'file', base }),
    effectiveFrom: from,
    reason: 'contract <b>',
    ...other,
  })
  return `p${proposal}`
}

/** The newest checkpoint. Signs one if there is none. */
const checkpointOf = async (foundation: Foundation): Promise<string> => {
  const [last] = await listCheckpoints(foundation, 1)
  return (last ?? (await foundation.checkpoints.make())).note
}

const folder = mkdtempSync(join(tmpdir(), 'samples-'))

const fileWith = (name: string, line: object): { readonly file: string } => {
  const file = join(folder, name)
  writeFileSync(file, `${JSON.stringify(line)}\n`)
  return { file }
}

const samples: Readonly<Record<string, Sample>> = {
  'ledger explain': ({ requestId }) => ({ request: requestId }),
  'ledger find-calls': () => ({ input: 'ada@example.com', from: '2026-01-01', to: '2099-01-01' }),
  'ledger months': () => ({}),
  'ledger totals': () => ({}),
  'ledger charges': () => ({}),
  'ledger day': () => ({}),
  'ledger export': () => ({ from: '0', to: '3' }),
  'ledger statement': () => ({ month: new Date().toISOString().slice(0, 7), jsonl: true }),
  'data list': () => ({}),
  'geo status': () => ({}),
  'companies import': () => fileWith('companies.jsonl', { name: 'Tailspin', website: 'tailspin.com' }),
  'companies show': () => ({ domain: 'nobody.com' }),
  'lists refresh': () => ({}),
  'profiles import': () =>
    fileWith('people.jsonl', {
      lid: 'sample-person',
      urn: 'urn:profnet:person:8172635445362718',
      firstname: 'Ada',
    }),
  'profiles erase': () => ({ id: `https://www.profnet.com/in/${freshName()}`, note: 'request 17' }),
  'org create': () => ({ name: 'Tailspin <Toys>', overdraft_limit: '12.5' }),
  'org list': () => ({}),
  'ledger verify': () => ({}),
  'ledger acknowledge': () => ({ revision: '1', digest: 'A'.repeat(43), reason: 'known' }),
  'ledger reconcile': () => ({}),
  'ledger close': () => ({ month: '2020-01' }),
  'ledger reverse': ({ requestId }) => ({ requests: `${requestId}\n` }),
  'projection list': () => ({}),
  'projection rebuild': () => ({ name: 'key_usage', reason: 'looked odd' }),
  'projection cancel': () => ({ name: 'key_usage' }),
  'projection rebuilds': () => ({}),
  'projection verify': () => ({ name: 'key_usage' }),
  'projection parked': () => ({}),
  'projection retry': () => ({ name: 'key_usage' }),
  'projection release': () => ({ name: 'key_usage', position: '1', reason: 'not needed' }),
  'jobs list': () => ({}),
  'jobs run': () => ({ name: 'none' }),
  'jobs dead': () => ({}),
  'jobs work': () => ({}),
  'jobs show': async ({ foundation }) => {
    const ended = (await longWorks(foundation.pool, 100)).find(({ state }) => state === 'done')
    if (ended !== undefined) return { id: ended.id }
    // If no long-running work has finished yet, no process will do any.
    const id = randomUUID()
    const operator = { actor: 'user:the-admin', role: 'admin' } as const
    const declared = declarationNamed('ledger verify')
    await requestLongWork(foundation, { id, declared, given: {}, operator }, silent)
    await takeBack(foundation, id, silent)
    return { id }
  },
  'jobs retry': () => ({ all: true }),
  'credits grant': () => ({
    amount: '12.5',
    expires_at: '2099-01-31',
    priority: '20',
    reason: 'invoice <b>',
  }),
  'credits void': ({ grantId }) => ({ grant: grantId, reason: 'not paid' }),
  'credits adjust': () => ({ amount: '-5.25', reason: 'counted twice', reference: 'note 7' }),
  'credits refund': ({ requestId }) => ({
    request: requestId,
    reason: 'wrong answer',
    reference: 'refund 1',
  }),
  'credits refund-calls': ({ keyId }) => ({
    key: keyId,
    from: lastDays().from,
    reason: 'not made by them',
    reference: 'SEC-17',
  }),
  'credits threshold': () => ({ amount: '100' }),
  'credits balance': () => ({}),
  'credits lots': () => ({}),
  'key issue': () => ({
    name: 'checkout <b>',
    permissions: ['ip_lookup', 'pixel_control'],
    requests_per_minute: 12,
    allow: ['203.0.113.0/24', '2001:db8::1'],
    expires_at: '2099-01-31',
  }),
  'key rotate': ({ keyId }) => ({ key: keyId, grace: '1h' }),
  'key revoke': ({ keyId }) => ({ key: keyId, reason: 'leaked <b>' }),
  'key replace-leaked': ({ keyId }) => ({
    key: keyId,
    from: lastDays().from,
    reason: 'leaked <b>',
    reference: 'SEC-18',
  }),
  'key limits': ({ keyId }) => ({ key: keyId, requests_per_minute: '7' }),
  'key list': () => ({}),
  'webhook create': () => ({
    url: 'https://hooks.example.com/a-secret-path',
    events: ['balance.low', 'key.expiring'],
  }),
  'webhook list': () => ({}),
  'webhook show': ({ webhookId }) => ({ webhook: webhookId }),
  'webhook deliveries': ({ webhookId }) => ({ webhook: webhookId, state: 'dead' }),
  'webhook delete': ({ webhookId }) => ({ webhook: webhookId }),
  'webhook test': ({ webhookId }) => ({ webhook: webhookId }),
  'webhook resend': ({ deliveryId }) => ({ delivery: deliveryId }),
  'webhook pause': ({ webhookId }) => ({ webhook: webhookId }),
  'webhook resume': ({ pausedWebhookId }) => ({ webhook: pausedWebhookId }),
  'webhook rotate-secret': ({ webhookId }) => ({ webhook: webhookId, grace: '1h' }),
  'user create': () => ({ name: freshName(), role: 'finance' }),
  'user invite': ({ organizationId }) => ({
    name: freshName(),
    role: 'partner',
    organization: organizationId,
  }),
  'user role': async (scene) => ({ name: await sampleUser(scene), role: 'operations' }),
  'user password': async (scene) => ({ name: await sampleUser(scene) }),
  'user disable': async (scene) => ({ name: await sampleUser(scene), reason: 'left <b>' }),
  'user enable': async (scene) => {
    const name = await sampleUser(scene)
    await setDisabled(scene.foundation, { name, disabled: true, reason: 'left', actor })
    return { name, reason: 'came back' }
  },
  'user second-factor': async (scene) => {
    const [name, secret, nowMs] = [await sampleUser(scene), freshTotpSecret(), Date.now()]
    const typed = TOTP.generate({ secret: Secret.fromBase32(secret), timestamp: nowMs })
    await setSecondFactor(scene.foundation, { user: name, secret, typed, actor }, nowMs)
    return { name, remove: true, reason: 'lost the phone' }
  },
  'user token': async (scene) => ({ name: await sampleUser(scene) }),
  'audit list': ({ organizationId }) => ({ about: organizationId, type: 'CreditGranted' }),
  'ledger lines': () => ({ kind: 'grant' }),
  'event-log list': ({ organizationId }) => ({ stream: ledgerStream(organizationId) }),
  'event-log show': ({ organizationId }) => ({ stream: ledgerStream(organizationId), revision: '1' }),
  'event-log checkpoints': () => ({ max: '2' }),
  'event-log checkpoint': async ({ foundation }) => {
    // The first checkpoint also announces the signing key.
    await checkpointOf(foundation)
    return {}
  },
  'event-log consistency': async ({ foundation }) => {
    await checkpointOf(foundation)
    return { size: '1' }
  },
  'event-log verify': async ({ foundation }) => ({ against: await checkpointOf(foundation) }),
  'event-log announce-key': () => ({ reason: 'a year has passed' }),
  'user list': () => ({}),
  'user tokens': async (scene) => {
    const name = await sampleUser(scene)
    await issueOperatorToken(scene.foundation, { user: name, actor })
    return { name }
  },
  'pixel rules': () => ({}),
  'pixel limit': () => ({ domain: 'Shop.Example.com.', number: 2, period: 'day' }),
  'pixel unlimit': () => ({ domain: 'limited.example.com', period: 'month' }),
  'pixel block': () => ({ domain: 'bad.example.org' }),
  'pixel unblock': () => ({ domain: 'blocked.example.org' }),
  'pixel hits': () => ({ domain: 'example.com' }),
  'price propose': async ({ foundation }) => {
    await withdrawn(foundation)
    return { rules, from, reason: 'contract <b>' }
  },
  'price approve': async ({ foundation }) => ({ proposal: await proposed(foundation) }),
  'price withdraw': async ({ foundation }) => ({ name: await proposed(foundation), reason: 'too dear' }),
  'price override': () => ({ sku: 'ip_lookup', amount: '0.5', effective_from: from, reason: 'contract 17' }),
  'price show': () => ({}),
  'price diff': () => ({ from: '1', to: rules, month: new Date().toISOString().slice(0, 7) }),
  'price overrides': async ({ organizationId, foundation }) => {
    if ((await priceOverrides(foundation, organizationId)).length === 0)
      await setPriceOverride(foundation, {
        organizationId,
        sku: 'ip_lookup',
        amount: 500_000n,
        effectiveFrom: from,
        reason: 'contract 17',
        ...other,
      })
    return {}
  },
  'rerate plan': () => ({ book: rules, ...lastDays(), reason: 'too cheap <b>' }),
  'rerate list': () => ({}),
  'rerate show': (scene) => planned(scene, scene.foundation, { approved: false }),
  'rerate approve': (scene) => planned(scene, scene.foundation, { approved: false }),
  'rerate apply': (scene) => planned(scene, scene.foundation, { approved: true }),
  'rerate abandon': async (scene) => ({
    ...(await planned(scene, scene.foundation, { approved: true })),
    reason: 'a mistake',
  }),
}

/**
 * Commands that have nothing to act on in the scene, each with the refusal that every interface gives. Other tests show that
 * these commands work.
 */
export const refusals: Readonly<Record<string, string>> = {
  'jobs run': 'there is no job "none"',
  'jobs retry': 'there are no dead letters',
  'projection release': 'key_usage has no event set aside at position 1',
}

/** Queries that the event log records, because they look for people. */
export const recordedQueries: readonly string[] = ['ledger find-calls']

/** Commands without events, because their effect is a message or a row, or because they find nothing to do in the scene. */
export const withoutEvents: readonly string[] = [
  'lists refresh',
  'profiles erase',
  'ledger reconcile',
  'ledger close',
  'projection cancel',
  'projection retry',
  'webhook test',
  'webhook resend',
]

/** Throws for a declaration without an example. */
export const sampleOf = (name: string): Sample => {
  const sample = samples[name]
  if (sample === undefined) throw new Error(`add an example of "${name}" to test/declared/samples.ts`)
  return sample
}

const names = declarations.map((one) => one.name as string)
export const samplesOfNothing = Object.keys(samples).filter((name) => !names.includes(name))
