/** A partner can read its own key, balance, usage, calls and ledger: Specification 2.2 and 4.4, with decisions 1, 6, 11 and 24. */
import { hash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import {
  balanceResult,
  callResult,
  receiptResult,
  usageResult,
} from '../../src/capabilities/account/contract.ts'
import type { Capability } from '../../src/events/capabilities.ts'
import {
  type AnswerAndFacts,
  houseForFile,
  openHouse,
  type Partner,
  places,
  until,
} from '../support/house.ts'
import { createRecomputation } from '../support/recompute-ledger.ts'
import { type Receipt, verifyReceipt } from '../support/verify-receipt.ts'
import { buy, rerate } from './ledger-scene.ts'
import {
  bare,
  expectCredits,
  expectNotAuthenticated,
  expectRefusedCall,
  jsonType,
  rateLimitsOf,
  ulid,
} from './wire.ts'

const house = await houseForFile()

const look = (
  partner: Partner,
  path: string,
  headers: Record<string, string> = {},
): Promise<AnswerAndFacts> => house.ask(partner, { method: 'GET', path, headers })

const freeFact = ({ keyId }: Partner, capability: Capability, facts: Record<string, unknown>) => ({
  type: 'KeyUsed',
  data: {
    key_id: keyId,
    capability,
    outcome: 'answered',
    facts: { kind: capability, ...facts },
    free_by: { rule: capability, rule_version: 1 },
  },
})

const callOf = (answer: AnswerAndFacts) => callResult.strict().parse(answer.body.result)
const idOf = (answer: AnswerAndFacts): string => String(answer.body.request_id)
const today = (): string => new Date().toISOString().slice(0, 10)

const instant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

describe('4.4 GET /whoami', () => {
  test('2.2 the body has exactly the organization, the key, its permissions and limits, and two times', async () => {
    const partner = await house.partner({
      permissions: ['ip_lookup', 'email_validation'],
      limits: { requests_per_minute: 60, requests_per_day: 5_000 },
    })
    const { status, headers, body } = await house.whoami(partner)
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        organization: 'Partner',
        api_key_id: partner.keyId,
        permissions: ['ip_lookup', 'email_validation'],
        rate_limits: { requests_per_minute: 60, requests_per_day: 5_000 },
        created_at: expect.stringMatching(instant),
        last_used: expect.stringMatching(instant),
      },
    })
    expect(headers.get('content-type')).toBe(jsonType)
    expect(headers.get('x-request-id')).toMatch(ulid)
  })

  test('costs nothing, and is recorded as one fact with the reason', async () => {
    const partner = await house.partner({ credits: '7' })
    const answer = await house.whoami(partner)
    expectCredits(answer, '0', '7')
    expect(Object.keys(rateLimitsOf(answer))).toEqual(['minute', 'day'])
    expect(bare(answer.events)).toEqual([
      {
        type: 'KeyUsed',
        data: {
          key_id: partner.keyId,
          capability: 'whoami',
          outcome: 'answered',
          facts: { kind: 'whoami' },
          free_by: { rule: 'whoami', rule_version: 1 },
        },
      },
    ])
    expect(answer.events[0]?.metadata.request_id).toBe(answer.headers.get('x-request-id'))
  })

  test('last_used becomes the time of this key’s last call, not another key’s', async () => {
    const partner = await house.partner()
    const other = await house.key(partner.organizationId)
    const { events } = await house.lookup(partner, { ip: places.london })
    const usedAt = events[0]?.metadata.effective_at
    await house.projected()
    const unused = await house.whoami(other)
    expect(String(unused.body.last_used) > String(usedAt)).toBe(true)
    expect((await house.whoami(partner)).body.last_used).toBe(usedAt)
  })

  test('an Idempotency-Key has no effect on a GET', async () => {
    const partner = await house.partner()
    const request = {
      method: 'GET',
      path: '/whoami',
      on: 'dashboard',
      headers: { 'idempotency-key': 'a' },
    } as const
    for (const answer of [await house.ask(partner, request), await house.ask(partner, request)]) {
      expect(answer.status).toBe(200)
      expect(answer.headers.get('idempotent-replayed')).toBeNull()
      expect(answer.events[0]?.data).not.toHaveProperty('idempotent')
    }
  })

  test('is the same on the dashboard host and the API host', async () => {
    const partner = await house.partner()
    const answers = []
    for (const on of ['dashboard', 'api'] as const) {
      const answer = await house.ask(partner, { method: 'GET', path: '/whoami', on })
      expect(answer.status).toBe(200)
      expect(answer.events.map(({ type, data }) => [type, data.capability])).toEqual([['KeyUsed', 'whoami']])
      answers.push({ ...answer.body, last_used: null })
    }
    expect(answers[1]).toEqual(answers[0])
  })
})

describe('every account endpoint', () => {
  const looks = [
    { path: '/v1/balance', capability: 'account' },
    { path: `/v1/usage?from=${today()}&to=${today()}`, capability: 'account' },
    { path: '/v1/calls/01JB2ZQ5V7N3K2M4P6R8T0W1X2', capability: 'account' },
    { path: '/v1/ledger/export', capability: 'ledger_export' },
  ] as const

  test.each(looks)('$path needs a key', async ({ path }) => {
    const partner = await house.partner()
    const answer = await look(partner, path, { 'x-api-key': 'none' })
    expectNotAuthenticated(answer)
    expect(answer.events).toEqual([])
  })

  test.each(looks)('$path is refused outside the allow-list of the key', async ({ path, capability }) => {
    const partner = await house.partner({ allowedCidrs: ['192.0.2.0/24'], permissions: ['ledger_read'] })
    const refusal = { status: 403, error: 'forbidden', code: 'AUTH_003', details: { address: '127.0.0.1' } }
    expectRefusedCall(await look(partner, path), partner, refusal, capability)
  })

  test('works under a price book that is older than these endpoints', async () => {
    const other = await openHouse()
    try {
      const limits = { requests_per_minute: 100_000 }
      const partner = await other.partner({ permissions: ['ip_lookup', 'ledger_read'], limits })
      await other.publishPriceBook({
        effective_from: '2020-01-02T00:00:00.000Z',
        rules: [
          { rule: 'ip_lookup.located', rule_version: 1, sku: 'ip_lookup', amount: '3' },
          { rule: 'ip_lookup.not_located', rule_version: 1, sku: null, amount: '0' },
          { rule: 'refusal', rule_version: 1, sku: null, amount: '0' },
        ],
      })
      await until(
        'the book is in force',
        async () =>
          (await other.lookup(partner, { ip: places.london })).headers.get('credits-charged') === '3',
      )
      for (const path of ['/v1/balance', '/v1/ledger/export'])
        expect((await other.ask(partner, { method: 'GET', path })).status).toBe(200)
    } finally {
      await other.close()
    }
  })
})

describe('GET /v1/balance', () => {
  test('shows the balance, the available credits and the lots that expire next; the call is free and recorded', async () => {
    const partner = await house.partner({ credits: '7', overdraft: '2.5' })
    await house.lookup(partner, { ip: places.london })
    const answer = await look(partner, '/v1/balance')
    const last = (await house.eventsOf(partner.organizationId)).at(-2)
    expect(answer.status).toBe(200)
    expect(balanceResult.strict().parse(answer.body.result)).toEqual({
      balance: '6',
      available: '8.5',
      overdraft_limit: '2.5',
      threshold: null,
      expiring: [],
      as_of: {
        revision: last?.revision,
        position: expect.stringMatching(/^\d+$/),
        recorded_at: expect.any(String),
      },
    })
    expectCredits(answer, '0', '6')
    expect(Object.keys(rateLimitsOf(answer))).toEqual(['minute', 'day'])
    expect(bare(answer.events)).toEqual([freeFact(partner, 'account', { view: 'balance' })])
  })
})

describe('GET /v1/usage', () => {
  const usage = async (partner: Partner, groupBy: string) => {
    const answer = await look(partner, `/v1/usage?from=${today()}&to=${today()}&group_by=${groupBy}`)
    return { answer, result: usageResult.strict().parse(answer.body.result) }
  }

  test('counts calls and credits by day, capability, key and rule, and only those of the organization', async () => {
    const partner = await house.partner({ credits: '7' })
    const second = await house.key(partner.organizationId)
    const stranger = await house.partner()
    await house.lookup(partner, { ip: places.london })
    await house.lookup(partner, { ip: places.unknown })
    await house.lookup(second, { ip: places.munich })
    await house.lookup(second, { ip: 'nonsense' })
    await house.lookup(stranger, { ip: places.london })
    await house.projected()
    const counts = (answered: number, refused: number, charged: string) => ({
      calls: answered + refused,
      answered,
      refused,
      failed: 0,
      rate_limited: 0,
      charged,
    })
    const { answer, result } = await usage(partner, 'rule')
    expect(result.groups).toEqual([
      { name: 'ip_lookup.located', ...counts(2, 0, '2') },
      { name: 'ip_lookup.not_located', ...counts(1, 0, '0') },
      { name: 'refusal', ...counts(0, 1, '0') },
    ])
    expect(result.total).toEqual(counts(3, 1, '2'))
    expect(result.as_of.position).toMatch(/^\d+$/)
    expectCredits(answer, '0', '5')
    expect(bare(answer.events)).toEqual([freeFact(partner, 'account', { view: 'usage' })])
    const byKey = (await usage(partner, 'key')).result.groups
    expect(byKey).toEqual(
      expect.arrayContaining([
        { name: second.keyId, ...counts(1, 1, '1') },
        expect.objectContaining({ name: partner.keyId, charged: '1' }),
      ]),
    )
    expect((await usage(partner, 'day')).result.groups.map(({ name }) => name)).toEqual([today()])
    expect((await usage(partner, 'capability')).result.groups.at(-1)).toEqual({
      name: 'ip_lookup',
      ...counts(3, 1, '2'),
    })
  })

  test.each([
    ['to=2026-11-01', 'REQ_002', { missing_parameter: 'from', parameter_type: 'string' }],
    ['from=2026-02-30&to=2026-03-01', 'REQ_003', { parameter: 'from' }],
    ['from=0000-01-01&to=0000-01-02', 'REQ_003', { parameter: 'from' }],
    ['from=2025-01-01&to=2026-02-05', 'REQ_003', { parameter: 'to' }],
    ['from=2026-11-01&to=2026-11-01&group_by=hour', 'REQ_003', { parameter: 'group_by' }],
  ])('?%s is %s', async (query, code, details) => {
    const partner = await house.partner()
    const answer = await look(partner, `/v1/usage?${query}`)
    expect(answer).toMatchObject({ status: 400, body: { code, details } })
    expectCredits(answer, '0', '1000')
  })
})

describe('GET /v1/calls/{request_id}', () => {
  test('explains a charge immediately, and again from the read models', async () => {
    const partner = await house.partner({ credits: '7' })
    const paid = await house.lookup(partner, { ip: places.london })
    const events = await house.eventsOf(partner.organizationId)
    const [, granted, used, charged] = events
    const early = callOf(await look(partner, `/v1/calls/${idOf(paid)}`))
    await house.projected()
    const answer = await look(partner, `/v1/calls/${idOf(paid).toLowerCase()}`)
    const call = callOf(answer)
    expect({ ...early, as_of: null }).toEqual({ ...call, as_of: null })
    expect(call).toMatchObject({
      request_id: idOf(paid),
      organization_id: partner.organizationId,
      key_id: partner.keyId,
      at: used?.metadata.effective_at,
      capability: 'ip_lookup',
      outcome: 'answered',
      code: null,
      facts: used?.data.facts,
      repeats: null,
      trace_id: null,
      replays: [],
      cost: {
        charged: '1',
        now: '1',
        charge_id: charged?.data.charge_id,
        free_by: null,
        lines: [
          {
            sku: 'ip_lookup',
            amount: '1',
            book_amount: '1',
            override: null,
            rule: 'ip_lookup.located',
            rule_version: 1,
            because: 'the address was located',
          },
        ],
        price_book: { version: 1, digest: charged?.data.price_book_digest },
      },
      lots: [
        {
          grant_id: granted?.data.grant_id,
          amount: '1',
          opened: { by: 'grant', amount: '7', reason: 'bought', expires_at: null, revision: 1 },
        },
      ],
      overdraft: '0',
      balance: { before: '7', after: '6' },
      adjustments: [],
      events: [
        { type: 'KeyUsed', event_id: used?.id, revision: 2 },
        { type: 'CreditCharged', event_id: charged?.id, revision: 3 },
      ],
      checkpoint: null,
    })
    expectCredits(answer, '0', '6')
    expect(bare(answer.events)).toEqual([freeFact(partner, 'account', { view: 'call' })])
  })

  test('explains free and refused calls', async () => {
    const partner = await house.partner()
    const free = await house.lookup(partner, { ip: places.unknown })
    const refused = await house.lookup(partner, { ip: 'nonsense' })
    expect(callOf(await look(partner, `/v1/calls/${idOf(free)}`))).toMatchObject({
      cost: {
        charged: '0',
        now: '0',
        charge_id: null,
        lines: [],
        price_book: { version: 1 },
        free_by: { rule: 'ip_lookup.not_located', because: expect.stringContaining('costs nothing') },
      },
      balance: { before: '1000', after: '1000' },
    })
    expect(callOf(await look(partner, `/v1/calls/${idOf(refused)}`))).toMatchObject({
      outcome: 'refused',
      code: 'IP_001',
      cost: { free_by: { rule: 'refusal' } },
    })
  })

  test('while a re-rating is being applied, the cost of a call is not known yet: SYS_002', async () => {
    const partner = await house.partner({ credits: '10' })
    const call = await house.ask(partner, { path: '/v1/ip/lookup', body: { ip: places.london } })
    // The correction is in the ledger, but the re-rating is not recorded as finished.
    await rerate(house, partner, { amount: '0.5', adjusts: null })
    const answer = await look(partner, `/v1/calls/${idOf(call)}`)
    expect({ status: answer.status, code: answer.body.code }).toEqual({ status: 503, code: 'SYS_002' })
    expect(answer.headers.get('retry-after')).not.toBeNull()
  })

  test('treats another organization’s call like one that never existed', async () => {
    const partner = await house.partner()
    const stranger = await house.partner()
    const paid = idOf(await house.lookup(stranger, { ip: places.london }))
    await house.projected()
    for (const id of [paid, '01JB2ZQ5V7N3K2M4P6R8T0W1X2'])
      expectRefusedCall(
        await look(partner, `/v1/calls/${id}`),
        partner,
        { status: 404, error: 'not_found', code: 'CALL_001', details: { request_id: id } },
        'account',
      )
  })

  test('a replay names the first call, and the first call names its replays', async () => {
    const partner = await house.partner()
    const headers = { 'idempotency-key': 'twice' }
    const first = await house.lookup(partner, { ip: places.london }, headers)
    const again = await house.lookup(partner, { ip: places.london }, headers)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    const replayId = String(again.headers.get('x-request-id'))
    const replays = [{ request_id: replayId, at: again.events[0]?.metadata.effective_at }]
    expect(callOf(await look(partner, `/v1/calls/${idOf(first)}`)).replays).toEqual(replays)
    await house.projected()
    expect(callOf(await look(partner, `/v1/calls/${idOf(first)}`)).replays).toEqual(replays)
    expect(callOf(await look(partner, `/v1/calls/${replayId}`))).toMatchObject({
      repeats: idOf(first),
      cost: { charged: '0', free_by: { rule: 'replay' } },
    })
  })

  test('shows the organization’s own price at the time, and later refunds', async () => {
    const partner = await house.partner()
    const { ledger } = house.foundation
    const by = { actor: 'cli', atMs: Date.now() }
    await ledger.submit(partner.organizationId, {
      ...by,
      key: 'price',
      kind: 'override_price',
      sku: 'ip_lookup',
      amount: 500_000n,
      effectiveFrom: '2026-01-01T00:00:00.000Z',
      reason: 'agreed',
    } as const)
    const paid = await house.lookup(partner, { ip: places.london })
    const chargeId = String(paid.events[1]?.data.charge_id)
    const back = (key: string, amount: bigint) =>
      ledger.submit(partner.organizationId, {
        ...by,
        key,
        kind: 'adjust',
        adjusts: chargeId,
        amount,
        reason: key,
        rerateRun: null,
        correction: 'refund',
      } as const)
    await back('a part', 200_000n)
    await house.projected()
    await back('another', 100_000n)
    expect(callOf(await look(partner, `/v1/calls/${idOf(paid)}`))).toMatchObject({
      cost: {
        charged: '0.5',
        now: '0.2',
        lines: [{ amount: '0.5', book_amount: '1', override: { amount: '0.5', reason: 'agreed' } }],
      },
      balance: { before: '1000', after: '999.5' },
      adjustments: [
        { kind: 'refund', amount: '0.2', reason: 'a part' },
        { kind: 'refund', amount: '0.1', reason: 'another' },
      ],
    })
  })
})

describe('GET /v1/ledger/export', () => {
  const pagesOf = async (partner: Partner, max: number): Promise<AnswerAndFacts[]> => {
    const pages: AnswerAndFacts[] = []
    for (
      let next: string | undefined = `/v1/ledger/export?from_revision=0&max=${max}`;
      next !== undefined;
    ) {
      const page: AnswerAndFacts = await look(partner, next)
      expect(page.status).toBe(200)
      pages.push(page)
      const target = /^<([^>]+)>; rel="next"$/.exec(page.headers.get('link') ?? '')?.[1]
      next = target === undefined ? undefined : `${target}&max=${max}`
    }
    return pages
  }
  const linesIn = (text: string): string[] => text.trimEnd().split('\n')
  const objectsIn = (text: string): Record<string, unknown>[] => linesIn(text).map((line) => JSON.parse(line))
  const recomputed = (lines: readonly string[]) => {
    const recomputation = createRecomputation()
    for (const line of lines) recomputation.line(line)
    return recomputation.result()
  }

  test('needs the permission ledger_read, which a key with all the other permissions lacks', async () => {
    const partner = await house.partner({
      permissions: ['ip_lookup', 'email_validation', 'profnet_scraping', 'pixel_control'],
    })
    const refusal = {
      status: 403,
      error: 'forbidden',
      code: 'AUTH_002',
      details: { required_permission: 'ledger_read' },
    }
    expectRefusedCall(await look(partner, '/v1/ledger/export'), partner, refusal, 'ledger_export')
  })

  test('streams every event with the exact bytes that its digest covers, and is recorded with its range', async () => {
    const partner = await house.partner({ permissions: ['ip_lookup', 'ledger_read'] })
    await house.lookup(partner, { ip: places.london })
    const stream = `ledger-${partner.organizationId}`
    const recorded = (await house.recorded()).filter((event) => event.stream === stream)
    const answer = await look(partner, '/v1/ledger/export')
    expect(answer.headers.get('content-type')).toBe('application/jsonl; charset=utf-8')
    expect(answer.headers.get('link')).toBeNull()
    const [header, ...lines] = objectsIn(answer.text)
    expect(header).toMatchObject({
      kind: 'ledger',
      stream,
      from_revision: 0,
      through_revision: recorded.length - 1,
      next_revision: null,
      previous_digest: null,
      price_books: [{ version: 1, rules: expect.any(Array) }],
    })
    expect(lines.slice(0, -1)).toEqual(
      recorded.map(({ revision, id, type, metadata, data }) => ({
        kind: 'event',
        stream,
        revision,
        event_id: id,
        type,
        metadata,
        data,
      })),
    )
    expect(lines.at(-1)).toMatchObject({
      kind: 'end',
      through_revision: recorded.length - 1,
      next_revision: null,
    })
    expectCredits(answer, '0', '999')
    expect(bare(answer.events)).toEqual([
      freeFact(partner, 'ledger_export', { from_revision: 0, through_revision: recorded.length - 1 }),
    ])
  })

  test('returns nothing beyond the end, and refuses an invalid revision', async () => {
    const partner = await house.partner({ permissions: ['ledger_read'] })
    const beyond = objectsIn((await look(partner, '/v1/ledger/export?from_revision=900')).text)
    expect(beyond).toMatchObject([
      { kind: 'ledger', next_revision: null },
      { kind: 'end', through_revision: 899 },
    ])
    for (const query of ['from_revision=-1', 'from_revision=x', 'max=0', 'max=10001'])
      expect(await look(partner, `/v1/ledger/export?${query}`)).toMatchObject({
        status: 400,
        body: { code: 'REQ_003', details: { parameter: query.split('=')[0] } },
      })
  })

  test('the published script recomputes charges, own prices, corrections and balance from the export', async () => {
    const partner = await house.partner({
      credits: '2',
      overdraft: '1.5',
      permissions: ['ip_lookup', 'ledger_read'],
    })
    const { ledger } = house.foundation
    const by = { actor: 'cli', atMs: Date.now() }
    const lookup = (ip: string) => house.lookup(partner, { ip })
    await lookup(places.london)
    await lookup(places.unknown)
    await lookup('nonsense')
    await ledger.submit(partner.organizationId, {
      ...by,
      key: 'price',
      kind: 'override_price',
      sku: 'ip_lookup',
      amount: 750_000n,
      effectiveFrom: '2026-01-01T00:00:00.000Z',
    } as const)
    for (const ip of [places.munich, places.london, places.munich, places.london]) await lookup(ip)
    await buy(house, partner, '5')
    const paid = await lookup(places.london)
    await ledger.submit(partner.organizationId, {
      ...by,
      key: 'back',
      kind: 'adjust',
      adjusts: String(paid.events[1]?.data.charge_id),
      amount: 750_000n,
      reason: 'refund',
      rerateRun: null,
      correction: 'refund',
    } as const)
    const pages = await pagesOf(partner, 5)
    expect(pages.length).toBeGreaterThan(3)
    const { balance, charged, events, digest } = recomputed(pages.flatMap(({ text }) => linesIn(text)))
    const last = (await look(partner, '/v1/balance')).body.result
    expect(last).toMatchObject({ balance })
    expect(charged).toBe('4')
    const stored = (await house.recorded()).filter(
      ({ stream }) => stream === `ledger-${partner.organizationId}`,
    )
    expect(JSON.parse(stored[events - 1]?.metadata ?? '{}').digest).toBe(digest)
  })

  test('the published script finds every line that was changed, left out, moved or priced wrongly', async () => {
    const partner = await house.partner({ permissions: ['ip_lookup', 'ledger_read'] })
    await house.lookup(partner, { ip: places.london })
    await house.lookup(partner, { ip: places.unknown })
    const lines = linesIn((await look(partner, '/v1/ledger/export')).text)
    expect(recomputed(lines)).toMatchObject({ charged: '1', balance: '999' })
    const changed = (n: number, change: (line: string) => string) =>
      lines.map((line, i) => (i === n ? change(line) : line))
    const without = (n: number) => lines.filter((_, i) => i !== n)
    const book = (amount: string) =>
      changed(0, (line) =>
        line.replace('"sku":"ip_lookup","amount":"1"', `"sku":"ip_lookup","amount":"${amount}"`),
      )
    const [header = '', first = '', second = '', ...rest] = lines
    for (const [tampered, fault] of [
      [changed(2, (line) => line.replace('1000', '1001')), 'was changed'],
      [without(3), 'revision 2 is missing'],
      [[header, second, first, ...rest], 'revision 0 is missing'],
      [without(lines.length - 2), 'is missing'],
      [without(lines.length - 1), 'the rest after'],
      [lines.slice(0, lines.length >> 1), 'the rest after'],
      [[], 'the rest after 0 events is missing'],
      [
        changed(lines.length - 1, (line) => line.replace('"next_revision":null', '"next_revision":9')),
        'the rest after',
      ],
      [book('2'), 'price book 1 was changed'],
      [rechained(lines, { '\\"amount\\":\\"1\\"': '\\"amount\\":\\"2\\"' }), 'due was'],
      [rechained(lines, { '\\"success\\":true': '\\"success\\":false' }), 'due was nothing'],
      [rechained(lines, { '\\"success\\":false': '\\"success\\":true' }), 'it was free, and has a price'],
      [rechained(lines, { '\\"amount\\":\\"1000\\"': '\\"amount\\":\\"0.5\\"' }), 'does not hold'],
    ] as const)
      expect(() => recomputed(tampered)).toThrow(fault)
  })

  test('anyone can download the script, and these tests run the same script', async () => {
    for (const name of ['recompute-ledger.ts', 'verify-receipt.ts']) {
      const response = await fetch(`${house.apiUrl}/docs/${name}`)
      expect(response.headers.get('content-type')).toBe('text/plain; charset=utf-8')
      expect(await response.text()).toBe(await readFile(`test/support/${name}`, 'utf8'))
    }
    const lines = (await readFile('test/support/recompute-ledger.ts', 'utf8')).trimEnd().split('\n')
    expect(lines.length).toBeLessThanOrEqual(160)
    expect(lines.filter((line) => line.startsWith('import')).every((line) => line.includes("'node:"))).toBe(
      true,
    )
  })
})

describe('GET /v1/calls/{request_id}/receipt proves a call to anyone, offline:', () => {
  const receiptOf = (partner: Partner, requestId: string): Promise<AnswerAndFacts> =>
    house.ask(partner, { method: 'GET', path: `/v1/calls/${requestId}/receipt` })
  const called = async (partner: Partner): Promise<string> =>
    String((await house.lookup(partner, { ip: places.london })).body.request_id)

  test('the answer is 202 with Retry-After until a checkpoint covers the call, then the proof; both are free and recorded', async () => {
    const partner = await house.partner({ credits: '7' })
    const requestId = await called(partner)
    const early = await receiptOf(partner, requestId)
    expect(early.status).toBe(202)
    expect(Number(early.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(early.body.result).toEqual({ covered: false, request_id: requestId })
    expectCredits(early, '0', '6')
    expect(early.events).toEqual([
      expect.objectContaining({
        type: 'KeyUsed',
        data: expect.objectContaining({
          facts: { kind: 'account', view: 'receipt' },
          free_by: { rule: 'account', rule_version: 1 },
        }),
      }),
    ])
    const { note } = await house.foundation.checkpoints.make()
    const answer = await receiptOf(partner, requestId)
    expect(answer.status).toBe(200)
    const receipt = receiptResult.parse(answer.body.result)
    if (!receipt.covered) throw new Error('not covered')
    expect(receipt.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
    expect(receipt.events.every(({ proof }) => proof.endsWith(note))).toBe(true)
    verifyReceipt(answer.body.result as Receipt, receipt.verifier_key)
  })

  test('requesting a receipt makes a checkpoint', async () => {
    const partner = await house.partner({ credits: '7' })
    const requestId = await called(partner)
    expect((await receiptOf(partner, requestId)).status).toBe(202)
    const jobs = await house.query(
      `select count(*)::int as waiting from pgboss.job where name = 'checkpoint-asked' and state in ('created', 'active')`,
    )
    expect(jobs).toEqual([{ waiting: 1 }])
  })

  test('the receipt of a free call covers its one event', async () => {
    const partner = await house.partner()
    const requestId = String((await house.lookup(partner, { ip: places.nowhere })).body.request_id)
    await house.foundation.checkpoints.make()
    await until('it is covered', async () => (await receiptOf(partner, requestId)).status === 200)
    const { body } = await receiptOf(partner, requestId)
    const receipt = receiptResult.parse(body.result)
    expect(receipt.covered && receipt.events.map(({ type }) => type)).toEqual(['KeyUsed'])
    verifyReceipt(body.result as Receipt)
  })

  test("the receipt of another organization's call, or of an unknown call, gets 404", async () => {
    const [partner, other] = [await house.partner({ credits: '7' }), await house.partner()]
    for (const requestId of [await called(partner), '01JB2ZQ5V7N3K2M4P6R8T0W1X2'])
      expect(await receiptOf(other, requestId)).toMatchObject({ status: 404, body: { error: 'not_found' } })
  })
})

/** Simulates someone who changed the ledger and recomputed all digests. */
const rechained = (lines: readonly string[], changes: Record<string, string>): string[] => {
  let digest = ''
  return lines.map((line) => {
    if (!line.includes('"kind":"event"')) return line
    const text = Object.entries(changes).reduce((changed, [from, to]) => changed.replaceAll(from, to), line)
    const event = JSON.parse(text)
    const open = event.metadata.slice(0, event.metadata.lastIndexOf(',"digest":"'))
    const { stream, revision, event_id, type, data } = event
    digest = hash('sha256', [digest, stream, revision, event_id, type, open, data].join('\n'), 'base64url')
    return JSON.stringify({ ...event, metadata: `${open},"digest":"${digest}"}` })
  })
}
