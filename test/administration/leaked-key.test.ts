/**
 * A leaked key is revoked first and then gets one successor. Each of its calls is refunded once, even if processes end at any
 * step or the command is repeated.
 */
import { createHash } from 'node:crypto'
import { pino } from 'pino'
import { ulid } from 'ulid'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { adjust } from '../../src/administration/credits/corrections.ts'
import { refund } from '../../src/administration/credits/refunds.ts'
import { declarationNamed } from '../../src/administration/declarations.ts'
import type { Context, Given } from '../../src/administration/declare.ts'
import {
  certainKey,
  changeLimits,
  defaultKeyLimits,
  revoke,
  rotate,
} from '../../src/administration/keys/api-keys.ts'
import { mayDo, roles } from '../../src/administration/roles.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { type DecodedEvent, decodeEvent } from '../../src/event-log/stored-event.ts'
import { keyStream, ledgerStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { parseApiKey } from '../../src/keys/api-key.ts'
import { graceDaysMax } from '../../src/keys/key-state.ts'
import { balanceOf } from '../../src/ledger/account.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { reversalCommand } from '../../src/ledger/write/reversals.ts'
import { exhaustive, randomCases } from '../support/exhaustive.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'
import { memoryProcess, pricedCall } from '../support/memory-process.ts'
import { anotherKey, grantTo } from '../support/partners.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const another = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZY'
const actor = 'user:anna'
const reference = 'SEC-17'
const hourMs = 3_600_000

let log: MemoryEventLog
let one: Foundation
let key: string

const hmacOf = (secret: string): string => createHash('sha256').update(secret).digest('base64url')

const processOf = (name: string): Foundation =>
  ({ ...memoryProcess(log, name), secrets: { apiKeyHmac: hmacOf } }) as unknown as Foundation

const contextOf = (foundation: Foundation): Context =>
  ({
    foundation,
    operator: { actor, role: 'admin' },
    logger: pino({ level: 'silent' }),
    progress: () => undefined,
    requestedAt: at(0),
  }) as unknown as Context

const replace = declarationNamed('key replace-leaked')
const refundCalls = declarationNamed('credits refund-calls')
const given = (more: Given = {}): Given => ({ key, from: at(-2), reference, ...more })
const at = (hours: number): string => new Date(Date.now() + hours * hourMs).toISOString()

const run = async (foundation: Foundation, more: Given = {}) => {
  const answer = await replace.read(given(more)).run(contextOf(foundation))
  return { ...answer, json: answer.json as Answered }
}
type Answered = {
  readonly api_key_id: string | null
  readonly api_key: string | null
  readonly refunds: {
    readonly calls: number
    readonly refunded: number
    readonly already_refunded: number
    readonly credits: string
    readonly not_refunded: readonly { readonly request_id: string; readonly why: string }[]
    readonly error?: string
  } | null
}

const openLedger = async (organizationId: string, amount: string): Promise<void> => {
  await one.ledger.submit(organizationId, {
    key: 'register',
    atMs: Date.now(),
    actor: 'test',
    kind: 'register',
    name: 'Acme',
    overdraftLimit: 0n,
  })
  await grantTo(one, organizationId, amount)
}

const issued = async (organizationId = org): Promise<string> =>
  (await anotherKey(one, organizationId, { name: 'production', allowedCidrs: ['203.0.113.0/24'] })).keyId

const call = async (
  price: string,
  {
    keyId = key,
    hours = -1,
    organizationId = org,
  }: { keyId?: string; hours?: number; organizationId?: string } = {},
): Promise<string> => {
  const atMs = Date.now() + hours * hourMs
  const requestId = ulid(atMs)
  await one.ledger.submit(organizationId, pricedCall({ requestId, price, keyId, atMs }))
  return requestId
}

const balance = async (): Promise<string> =>
  formatCredits(balanceOf(await processOf('reader').ledger.account(org), Date.now()))
const typesIn = (stream: string): string[] => log.eventsOf(stream).map(({ type }) => type)
const keyStreams = (): string[] => log.streams.filter((stream) => stream.startsWith('key-'))
const refunds = (): string[] => typesIn(ledgerStream(org)).filter((type) => type === 'CreditAdjusted')
const successorIn = (keyId: string): string | undefined =>
  log
    .eventsOf(keyStream(keyId))
    .map(decodeEvent)
    .flatMap(({ type, data }) => (type === 'ApiKeyRotated' ? [data.successor_id] : []))[0]

const secretIn = (event: DecodedEvent | undefined): string | undefined =>
  event?.type === 'ApiKeyIssued' ? event.data.secret_hmac : undefined

beforeEach(async () => {
  log = createMemoryEventLog({ now: Date.now })
  one = processOf('one')
  await openLedger(org, '100')
  key = await issued()
})

/** Two calls to refund, one of which was partly refunded before, and calls that must not be refunded. */
const history = async (): Promise<void> => {
  const other = await issued()
  await call('7', { hours: -5 })
  await call('11', { keyId: other })
  await call('0')
  await call('2')
  const partly = await call('3')
  await refund(one, {
    requestId: partly,
    organizationId: org,
    amount: parseCredits('1'),
    reason: 'slow',
    actor,
    dryRun: false,
  })
}

describe('a leaked key', () => {
  test('is ended, replaced by a key with the same rights, and its calls are refunded', async () => {
    await history()
    expect(await balance()).toBe('78')
    const planned = await replace.read(given()).plan(contextOf(one))
    expect(planned.says).toEqual([
      expect.stringMatching(/^Revoke key .* "production" of Acme/),
      'Issue its successor with the same name, permissions, addresses and limits. It is shown once.',
      'Refund 4 credits of 2 calls.',
      '1 call cost nothing.',
    ])
    const { json, failed } = await run(one)
    expect(failed).toBeUndefined()
    expect(json).toMatchObject({
      organization_id: org,
      replaces: key,
      name: 'production',
      allowed_cidrs: ['203.0.113.0/24'],
      refunds: { calls: 3, free: 1, refunded: 2, already_refunded: 0, credits: '4', not_refunded: [] },
    })
    expect(await balance()).toBe('82')
    const successor = json.api_key_id ?? ''
    expect(parseApiKey(json.api_key ?? '')?.keyId).toBe(successor)
    const [first] = log.eventsOf(keyStream(successor)).map(decodeEvent)
    const [old] = log.eventsOf(keyStream(key)).map(decodeEvent)
    expect(first?.data).toMatchObject({
      permissions: ['ip_lookup'],
      limits: defaultKeyLimits,
      name: 'production',
      expires_at: null,
      secret_hmac: hmacOf(parseApiKey(json.api_key ?? '')?.secret ?? ''),
    })
    expect(first?.data).not.toMatchObject({
      secret_hmac: secretIn(old),
    })
    expect(typesIn(keyStream(key))).toEqual(['ApiKeyIssued', 'ApiKeyRevoked', 'ApiKeyRotated'])
    expect(log.eventsOf(keyStream(key)).map((event) => decodeEvent(event).metadata.actor)).toEqual([
      'cli',
      actor,
      actor,
    ])
  })

  test('that is replaced again gets no second successor, and refunds are not repeated', async () => {
    await history()
    const first = await run(one)
    const before = await one.eventLog.head()
    const again = await run(processOf('other'))
    expect(again.json).toMatchObject({
      api_key_id: first.json.api_key_id,
      api_key: null,
      refunds: { refunded: 0, already_refunded: 2, credits: '0', not_refunded: [] },
    })
    const planned = await replace.read(given()).plan(contextOf(one))
    expect(planned).toMatchObject({ nothing: true, asks: 'never' })
    const underAnother = await run(one, { reference: 'SEC-18' })
    expect(underAnother.json).toMatchObject({ api_key: null, refunds: { refunded: 0, credits: '0' } })
    expect(underAnother.json.refunds?.not_refunded.map(({ why }) => why)).toEqual([
      expect.stringContaining('nothing left to refund'),
      expect.stringContaining('nothing left to refund'),
    ])
    expect(await one.eventLog.head()).toBe(before)
    expect(await balance()).toBe('82')
  })

  test('is replaced once by two concurrent processes, and one of them shows the key', async () => {
    await history()
    for (let n = 0; n < randomCases(8); n++) {
      const leaked = await issued()
      await call('2', { keyId: leaked })
      await call('3', { keyId: leaked })
      const before = await balance()
      const answers = await Promise.all(
        ['a', 'b'].map((name) => run(processOf(`${name}${n}`), { key: leaked })),
      )
      const shown = answers.flatMap(({ json }) => (json.api_key === null ? [] : [json.api_key]))
      expect(shown).toHaveLength(1)
      const successor = answers[0]?.json.api_key_id ?? ''
      expect(answers[1]?.json.api_key_id).toBe(successor)
      expect(typesIn(keyStream(leaked))).toEqual(['ApiKeyIssued', 'ApiKeyRevoked', 'ApiKeyRotated'])
      expect(typesIn(keyStream(successor))).toEqual(['ApiKeyIssued'])
      expect(answers.map(({ json }) => json.refunds?.error)).toEqual([undefined, undefined])
      expect(parseCredits(await balance()) - parseCredits(before)).toBe(parseCredits('5'))
    }
    expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
  })

  test('that was already revoked or rotated is not revoked or replaced again', async () => {
    await revoke(one, { keyId: key, reason: 'leaked', actor })
    const first = await run(one)
    expect(typesIn(keyStream(key))).toEqual(['ApiKeyIssued', 'ApiKeyRevoked', 'ApiKeyRotated'])
    expect(first.json.api_key).not.toBeNull()
    const rotated = await issued()
    const { keyId: successor } = await rotate(one, { keyId: rotated, graceMs: hourMs, actor })
    const streams = keyStreams().length
    expect((await run(one, { key: rotated })).json).toMatchObject({ api_key_id: successor, api_key: null })
    expect(typesIn(keyStream(rotated))).toEqual(['ApiKeyIssued', 'ApiKeyRotated', 'ApiKeyRevoked'])
    expect(keyStreams()).toHaveLength(streams)
  })

  test('that does not exist, or belongs to another organization, is refused, and nothing is written', async () => {
    await openLedger(another, '10')
    const before = await one.eventLog.head()
    for (const more of [{ key: 'A'.repeat(16) }, { organization: another }]) {
      await expect(run(one, more)).rejects.toThrow('there is no API key')
      await expect(replace.read(given(more)).plan(contextOf(one))).rejects.toThrow('there is no API key')
    }
    expect(await one.eventLog.head()).toBe(before)
  })

  test('is ended and replaced even if its calls cannot be read, and the answer shows the key and the error', async () => {
    await history()
    const { eventLog } = one
    const unread: Foundation = {
      ...one,
      eventLog: {
        ...eventLog,
        read: async (stream, options) => {
          if (stream === ledgerStream(org)) throw new Error('the disk has failed')
          return eventLog.read(stream, options)
        },
      },
    }
    const { json, failed } = await run(unread)
    expect(failed).toBe(true)
    expect(json.api_key).toMatch(/^enl_live_/)
    expect(json.refunds?.error).toContain('the disk has failed')
    expect((await run(one)).json).toMatchObject({ api_key: null, refunds: { refunded: 2, credits: '4' } })
    expect(await balance()).toBe('82')
  })
})

describe('the chosen calls', () => {
  test('that were refunded or reversed, or were free, get no refund, and the answer gives the reason', async () => {
    const [whole, reversed, free] = [await call('2'), await call('3'), await call('0')]
    const asked = { organizationId: org, reason: 'slow', actor, dryRun: false }
    await refund(one, { ...asked, requestId: whole })
    const used = log.eventsOf(ledgerStream(org)).find(({ metadata }) => metadata.includes(reversed))
    const charged = log
      .eventsOf(ledgerStream(org))
      .find(({ revision }) => revision === (used?.revision ?? 0) + 1)
    if (used === undefined || charged === undefined) throw new Error('no call')
    const { data } = decodeEvent(charged)
    await one.ledger.submit(
      org,
      reversalCommand(
        {
          chargeId: 'charge_id' in data ? String(data.charge_id) : '',
          amount: parseCredits('3'),
          firstEventId: used.id,
          revision: charged.revision,
          calledMs: Date.now(),
          into: [],
        },
        Date.now(),
      ),
    )
    const { json } = await run(one, { from: undefined, requests: [whole, reversed, free].join() })
    expect(json.refunds).toMatchObject({ calls: 3, free: 1, refunded: 0, credits: '0' })
    expect(json.refunds?.not_refunded).toEqual([
      { request_id: whole, why: expect.stringMatching(/was charged 2; .* 2 given back at .* \(refund\)/) },
      {
        request_id: reversed,
        why: expect.stringMatching(/was charged 3; .* 3 given back at .* \(reversal\)/),
      },
    ])
    expect(await balance()).toBe('100')
  })

  test('by another organization or key are not refunded, as if they did not exist', async () => {
    await openLedger(another, '10')
    const stranger = await issued(another)
    const [own, other, theirs, none] = [
      await call('2'),
      await call('3', { keyId: await issued() }),
      await call('4', { keyId: stranger, organizationId: another }),
      ulid(),
    ]
    const before = log.eventsOf(ledgerStream(another)).length
    const { json, failed } = await run(one, { from: undefined, requests: [own, other, theirs, none] })
    expect(failed).toBe(true)
    expect(json.refunds).toMatchObject({ calls: 1, refunded: 1, credits: '2' })
    expect(json.refunds?.not_refunded).toEqual(
      [other, theirs, none].map((id) => ({ request_id: id, why: `key ${key} has no call ${id}` })),
    )
    expect(await balance()).toBe('97')
    expect(log.eventsOf(ledgerStream(another))).toHaveLength(before)
  })

  test('are those before the end of the range, and nothing is refunded if no calls are chosen', async () => {
    const requestId = await call('2', { hours: -1.5 })
    await call('3')
    expect((await run(one, { from: undefined })).json.refunds).toBeNull()
    expect((await run(one, { to: at(-1.25) })).json.refunds).toMatchObject({ refunded: 1, credits: '2' })
    expect(await balance()).toBe('97')
    for (const [more, why] of [
      [{ requests: requestId }, 'not by both'],
      [{ from: undefined, to: at(0) }, 'a start is required'],
      [{ to: at(-3) }, 'is not after'],
      [{ reference: 'x'.repeat(180) }, 'at most 173 characters'],
      [{ from: undefined, requests: 'abc' }, 'not a request id'],
    ] as const)
      await expect(async () => run(one, more)).rejects.toThrow(why)
  })

  test('are refunded by the command for refunds alone, once per reference', async () => {
    await history()
    const context = contextOf(one)
    const asked = () => refundCalls.read(given({ reason: 'leaked' }))
    expect((await asked().plan(context)).says[0]).toBe('Refund 4 credits of 2 calls.')
    expect((await asked().run(context)).json).toMatchObject({ refunded: 2, credits: '4' })
    expect((await asked().run(context)).json).toMatchObject({ refunded: 0, already_refunded: 2 })
    expect(await asked().plan(context)).toMatchObject({ nothing: true })
    expect((await run(one)).json.refunds).toMatchObject({ refunded: 0, already_refunded: 2 })
    expect(await balance()).toBe('82')
    expect(() => refundCalls.read({ key, reference })).toThrow('a value is required')
    await expect(refundCalls.read({ key, reference, reason: 'x' }).run(context)).rejects.toThrow(
      'choose calls by time or by id',
    )
  })

  test('are refunded exactly, even while others correct the same ledger', async () => {
    for (let n = 0; n < 12; n++) await call('2')
    const asked = { organizationId: org, reason: 'counted twice', actor, dryRun: false }
    const [{ json }] = await Promise.all([
      run(one),
      ...Array.from({ length: 6 }, () => adjust(processOf('other'), { ...asked, amount: parseCredits('1') })),
    ])
    expect(json.refunds?.error).toBeUndefined()
    expect(await balance()).toBe('106')
    expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
  })
})

class Ended extends Error {
  override name = 'Ended'
}

/** A process that ends at its n-th access to the log, ledger or database: before the access, or after it but before the answer arrives. */
const endingAt = (step: number, when: 'before' | 'after') => {
  let steps = 0
  const counted =
    <Arguments extends unknown[], Result>(work: (...given: Arguments) => Promise<Result>) =>
    async (...given: Arguments): Promise<Result> => {
      const own = steps++
      if (own > step || (own === step && when === 'before')) throw new Ended()
      const result = await work(...given)
      if (own === step) throw new Ended()
      return result
    }
  const foundation = processOf(`ending at ${step}`)
  const { eventLog, ledger, pool } = foundation
  return {
    foundation: {
      ...foundation,
      eventLog: { ...eventLog, append: counted(eventLog.append), read: counted(eventLog.read) },
      ledger: { ...ledger, account: counted(ledger.account), submit: counted(ledger.submit) },
      pool: { query: counted(pool.query as () => Promise<unknown>) },
    } as unknown as Foundation,
    ended: () => steps > step,
  }
}

describe.each(['before', 'after'] as const)('a process that ends %s', (when) => {
  test('any of its steps leaves a key that is ended first, and a repetition does what is missing', async () => {
    let step = 0
    for (let ended = true; ended; step += exhaustive ? 1 : 4) {
      log = createMemoryEventLog({ now: Date.now })
      one = processOf('one')
      await openLedger(org, '100')
      key = await issued()
      await history()
      const before = refunds().length
      const dying = endingAt(step, when)
      const told = await run(dying.foundation).catch(() => null)
      ended = dying.ended()

      const successor = successorIn(key)
      const isRevoked = typesIn(keyStream(key)).includes('ApiKeyRevoked')
      const isIssued = successor !== undefined && typesIn(keyStream(successor)).length > 0
      expect([step, isIssued && !isRevoked, refunds().length > before && !isIssued]).toEqual([
        step,
        false,
        false,
      ])

      const again = await run(processOf('other'))
      expect([step, again.failed]).toEqual([step, undefined])
      expect(typesIn(keyStream(key))).toEqual(['ApiKeyIssued', 'ApiKeyRevoked', 'ApiKeyRotated'])
      expect(keyStreams()).toHaveLength(3)
      expect([step, await balance()]).toEqual([step, '82'])
      expect(refunds()).toHaveLength(before + 2)
      const [first] = log.eventsOf(keyStream(again.json.api_key_id ?? '')).map(decodeEvent)
      const working = secretIn(first)
      // At most one of the two runs has shown the key that works.
      const shown = [told?.json.api_key, again.json.api_key].flatMap((text) => text ?? [])
      expect(shown.length).toBeLessThanOrEqual(1)
      for (const text of shown) expect(hmacOf(parseApiKey(text)?.secret ?? '')).toBe(working)

      const head = await one.eventLog.head()
      await run(one)
      expect(await one.eventLog.head()).toBe(head)
      expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
    }
    expect(step).toBeGreaterThan(20)
  })
})

test('the roles that may replace a leaked key are those that may change both keys and credits', () => {
  const both = roles.filter((role) => mayDo(role, 'keys.change') && mayDo(role, 'credits.change'))
  expect(roles.filter((role) => mayDo(role, 'keys.replace'))).toEqual(both)
})

test('the longest grace period for a rotation is accepted even if the clock advances between readings', async () => {
  let readings = 0
  const laterMs = Date.now() + 1_000
  const reading = vi.spyOn(Date, 'now').mockImplementation(() => laterMs + readings++)
  try {
    const { graceUntil } = await rotate(one, { keyId: key, graceMs: graceDaysMax * 24 * hourMs, actor })
    expect(graceUntil).toMatch(/Z$/)
  } finally {
    reading.mockRestore()
  }
})

test('a key whose limits are lowered while it is rotated is not rotated, because its successor would have the higher limits', async () => {
  const { eventLog } = one
  const append: typeof eventLog.append = async (stream, ...asked) => {
    const appended = await eventLog.append(stream, ...asked)
    if (stream !== keyStream(key) && typesIn(keyStream(key)).length === 1)
      await changeLimits(one, { keyId: key, limits: { requests_per_minute: 1 }, actor })
    return appended
  }
  const slow = { ...one, eventLog: { ...eventLog, append } }
  await expect(rotate(slow, { keyId: key, graceMs: 0, actor })).rejects.toThrow(
    `key ${key} was changed at the same moment; rotate it again`,
  )
  expect(typesIn(keyStream(key))).toEqual(['ApiKeyIssued', 'ApiKeyLimitsChanged'])
  const [successor] = keyStreams().filter((stream) => stream !== keyStream(key))
  expect(typesIn(successor ?? '')).toEqual(['ApiKeyIssued', 'ApiKeyRevoked'])
  const { keyId } = await rotate(one, { keyId: key, graceMs: 0, actor })
  expect((await certainKey(one, { keyId })).limits.requests_per_minute).toBe(1)
})

test('a key whose last event is missing from the log cannot be revoked, and the error names the event and the remedy', async () => {
  const eventLog = { ...one.eventLog, lastRevision: async () => 1 }
  await expect(revoke({ ...one, eventLog }, { keyId: key, reason: 'leaked', actor })).rejects.toMatchObject({
    name: 'CommandRefused',
    message: `key ${key} cannot be changed: event 1 of its stream is missing from the event log. Restore the log from a backup. Until then, a process that is restarted refuses the key`,
  })
})
