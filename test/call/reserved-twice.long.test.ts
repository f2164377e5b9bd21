/**
 * A call with a low balance sends the ledger two commands under one key. The first checks whether the call must be refused, and
 * must leave nothing behind. The second must record the call's facts and its charge.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pino } from 'pino'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/commit.ts'
import { type Answer, type House, openHouse, send, until } from '../support/house.ts'
import { atMs, call, command, openLedger, org } from '../support/ledger-commands.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

describe('a command without events', () => {
  let log: MemoryEventLog
  let ledger: Ledger

  beforeEach(async () => {
    log = createMemoryEventLog({ now: () => atMs })
    ledger = createLedger({
      eventLog: log.client('process'),
      snapshot: async () => null,
      logger: pino({ level: 'silent' }),
      clock: { now: () => atMs },
    })
    await openLedger(ledger, '100')
  })
  afterEach(async () => {
    expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
  })

  const charged = ['KeyUsed', 'CreditCharged']

  test.each([
    ['a request id', {}],
    ['an Idempotency-Key', { requestId: 'request', absentUpTo: 1 }],
  ] as const)('under %s does not replace the next command under the same key', async (_, more) => {
    const others = [ledger.submit(org, call('before-1')), ledger.submit(org, call('before-2'))]
    const nothing = ledger.submit(org, command('twice', { kind: 'expire', grantId: 'none' }, more))
    const atOnce = ledger.submit(org, call('twice', more))
    others.push(ledger.submit(org, call('after')))
    expect((await nothing).events).toEqual([])
    const made = await atOnce
    expect(made.events.map(({ type }) => type)).toEqual(charged)
    expect(made.repeated).toBe(false)
    await Promise.all(others)
    if (!('absentUpTo' in more)) return
    const again = await ledger.submit(org, call('twice', more))
    expect(again.repeated).toBe(true)
    expect(again.events).toEqual(made.events)
  })

  test('and the call that follows immediately, as a real caller sends it, is charged', async () => {
    const others = [ledger.submit(org, call('before-1')), ledger.submit(org, call('before-2'))]
    const made = ledger
      .submit(org, command('twice', { kind: 'expire', grantId: 'none' }, { requestId: 'request' }))
      .then(() => ledger.submit(org, call('twice', { requestId: 'request' })))
    others.push(ledger.submit(org, call('after')))
    expect((await made).events.map(({ type }) => type)).toEqual(charged)
    await Promise.all(others)
  })
})

describe('over HTTP, with a balance that pays for one call in progress', () => {
  const upstream = createServer((request, response) => {
    const lid = request.url?.split('/').pop() ?? ''
    const answer = (): void => {
      if (lid.startsWith('nobody')) response.writeHead(404).end()
      else
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(JSON.stringify({ lid, firstname: 'Zorvina', headline: 'Keeper' }))
    }
    if (lid.startsWith('nobody')) holding.push(answer)
    else answer()
  })
  /** Calls about an unknown person wait. Their credits stay reserved until the test releases them. */
  const holding: (() => void)[] = []
  let house: House

  beforeAll(async () => {
    await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve))
    const { port } = upstream.address() as AddressInfo
    house = await openHouse({
      environment: {
        PROFILE_PROVIDER: 'http',
        PROFILE_HTTP_URL: `http://127.0.0.1:${port}/p/{lid}`,
        EGRESS_ALLOW: '127.0.0.0/8',
      },
    })
  })
  afterAll(async () => {
    await house?.close()
    upstream.closeAllConnections()
    await new Promise((resolve) => upstream.close(resolve))
  })

  const rounds = 8
  /** Rounds under keys continue until one call is accepted after all; otherwise they would test nothing. */
  const roundsMax = 80
  const profilesAtOnce = 25
  /** Whether a busy machine did not answer a call in time. Such a call is neither recorded nor charged. */
  const notInTime = ({ body }: Answer): boolean => body.code === 'SYS_002'
  const limits = { requests_per_minute: 100_000, requests_per_day: 1_000_000 }

  test.each([
    ['with', true],
    ['without', false],
  ] as const)(
    '%s Idempotency-Keys, no data is returned uncharged and no call leaves without its facts',
    async (_, keyed) => {
      let delivered = 0
      for (let round = 0; round < rounds || (keyed && delivered === 0 && round < roundsMax); round++) {
        const partner = await house.partner({
          permissions: ['profnet_scraping', 'ip_lookup'],
          credits: '7',
          limits,
        })
        const post = (path: string, body: object, key?: string): Promise<Answer> =>
          send(`${house.apiUrl}${path}`, {
            headers: {
              'x-api-key': partner.apiKey,
              'content-type': 'application/json',
              ...(key === undefined ? {} : { 'idempotency-key': key }),
            },
            body,
          })
        const before = (await house.eventsOf(partner.organizationId)).length
        const name = `${keyed ? 'keyed' : 'bare'}-${round}`
        const held = post('/v1/profnet/profile', { id: `nobody-${name}`, cached: false })
        await until('the first call holds its reservation', async () => holding.length > 0)
        const others: Promise<Answer>[] = []
        const profiles = Array.from({ length: profilesAtOnce }, (_, n) => {
          // Lookups without a location are free, and keep the ledger busy.
          others.push(post('/v1/ip/lookup', { ip: '10.0.0.1' }))
          return post(
            '/v1/profnet/profile',
            { id: `somebody-${name}-${n}`, cached: false },
            keyed ? `key-${n}` : undefined,
          )
        })
        // The reservation ends at different times, because no single time suits every machine.
        if (round % 4 !== 3) await Promise.race([...profiles, ...others])
        for (const answer of holding.splice(0)) answer()
        const answers = await Promise.all(profiles)
        const all = [await held, ...answers, ...(await Promise.all(others))]
        // An unknown outcome, which a busy machine can cause, proves nothing.
        if (all.some(({ body }) => body.code === 'SYS_003')) continue
        for (const answer of answers) {
          expect([200, 402, ...(notInTime(answer) ? [503] : [])]).toContain(answer.status)
          if (answer.status !== 200) continue
          delivered++
          expect(answer.headers.get('credits-charged')).toBe('5')
        }
        expect(answers.filter(({ status }) => status === 200).length).toBeLessThanOrEqual(1)
        const facts = (await house.eventsOf(partner.organizationId)).slice(before)
        const used = facts.filter(({ type }) => type === 'KeyUsed')
        expect(used.map(({ metadata }) => metadata.request_id).sort()).toEqual(
          all
            .filter((answer) => !notInTime(answer))
            .map(({ headers }) => headers.get('x-request-id'))
            .sort(),
        )
        expect(facts.filter(({ type }) => type === 'CreditCharged')).toHaveLength(
          answers.filter(({ status }) => status === 200).length,
        )
      }
      if (keyed) expect(delivered).toBeGreaterThan(0)
    },
  )
})
