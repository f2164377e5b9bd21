/** Operators' credit movements are made once per reference, and refunds never exceed the cost of a call, even with concurrent requests. */
import { beforeEach, describe, expect, test } from 'vitest'
import { adjust, voidGrant } from '../../src/administration/credits/corrections.ts'
import { grant, grantOnce } from '../../src/administration/credits/credits.ts'
import { lotsLeft } from '../../src/administration/credits/queries.ts'
import { refund } from '../../src/administration/credits/refunds.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { RecordedEvent } from '../../src/event-log/port.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { ledgerStream, referenceStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { balanceOf } from '../../src/ledger/account.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { LedgerUnavailable } from '../../src/ledger/command.ts'
import { reversalCommand } from '../../src/ledger/write/reversals.ts'
import { type ClientFaults, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'
import { type MemoryProcess, memoryProcess, noRows, pricedCall } from '../support/memory-process.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const stream = ledgerStream(org)
const reference = 'INV-2026-117'
const who = { actor: 'user:anna', dryRun: false }

type Process = MemoryProcess

let log: MemoryEventLog
const processOf = (name: string, faults?: ClientFaults, pool = noRows): Process =>
  memoryProcess(log, name, { ...(faults && { faults }), pool })

let one: Process
let other: Process

beforeEach(async () => {
  log = createMemoryEventLog()
  one = processOf('one')
  other = processOf('other')
  await one.ledger.submit(org, {
    key: 'register',
    atMs: Date.now(),
    actor: 'test',
    kind: 'register',
    name: 'Acme',
    overdraftLimit: 0n,
  })
})

const grantOf = (amount: string, more: { expiresAt?: string | null; priority?: number } = {}) => ({
  organizationId: org,
  amount: parseCredits(amount),
  priority: 100,
  expiresAt: null,
  reason: 'plan',
  actor: 'user:anna',
  ...more,
})
const eventsOf = (type: string): RecordedEvent[] => log.eventsOf(stream).filter((one) => one.type === type)
const balance = async (): Promise<string> =>
  formatCredits(balanceOf(await processOf('reader').ledger.account(org), Date.now()))
const sound = async (): Promise<void> =>
  expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()

const requestIdOf = (n: number): string => `01M7YKBQZN92PN3ABTVNQE6E${String(n).padStart(2, '0')}`

/** Makes a call with this cost. Returns its request id. */
const call = async (n: number, price: string): Promise<string> => {
  const requestId = requestIdOf(n)
  await one.ledger.submit(org, pricedCall({ requestId, price }))
  return requestId
}

describe('a grant with a reference', () => {
  const wanted = { ...grantOf('100', { expiresAt: '2999-01-01T00:00:00.000Z' }), reference }

  test('is made once, and reports whether it existed already', async () => {
    const first = await grantOnce(one, wanted)
    const again = await grantOnce(other, { ...wanted, reason: 'sent twice' })
    expect(first.already).toBe(false)
    expect(again).toEqual({ ...first, already: true })
    expect(first.granted).toMatchObject({ amount: '100', reason: 'plan', reference })
    expect(await balance()).toBe('100')
    await sound()
  })

  test('with another amount, expiry, priority or kind is refused, and the error names both values', async () => {
    await grantOnce(one, wanted)
    const first = `reference "${reference}" already names a grant of 100 credits with priority 100 that expires at 2999-01-01T00:00:00.000Z; you asked for `
    for (const [changed, text] of [
      [
        { amount: parseCredits('200') },
        'a grant of 200 credits with priority 100 that expires at 2999-01-01',
      ],
      [{ expiresAt: null }, 'a grant of 100 credits with priority 100 that never expires'],
      [{ priority: 5 }, 'a grant of 100 credits with priority 5'],
    ] as const)
      await expect(grantOnce(other, { ...wanted, ...changed })).rejects.toThrow(`${first}${text}`)
    await expect(
      adjust(other, { organizationId: org, amount: parseCredits('100'), reason: 'x', reference, ...who }),
    ).rejects.toThrow(`${first}an adjustment of 100 credits`)
    expect(await balance()).toBe('100')
  })

  test('by two concurrent processes is one lot, and one of the processes reports that it existed', async () => {
    for (let n = 0; n < 8; n++) {
      const same = { ...grantOf('1'), reference: `simultaneous ${n}` }
      const made = await Promise.all([grantOnce(one, same), grantOnce(other, same)])
      expect(made.map(({ already }) => already).sort()).toEqual([false, true])
      expect(made[0]?.granted).toEqual(made[1]?.granted)
    }
    expect(await balance()).toBe('8')
    await sound()
  })

  test('made by another process after this one searched for it is found in the ledger', async () => {
    await grantOnce(one, { ...wanted, reference: 'another' })
    const { ledger } = one
    const behind: Process = {
      ...one,
      ledger: {
        ...ledger,
        submit: async (organizationId, command) => {
          await grantOnce(other, wanted)
          await ledger.account(org)
          return ledger.submit(organizationId, command)
        },
      },
    }
    expect((await grantOnce(behind, wanted)).already).toBe(true)
    expect(await balance()).toBe('200')
    await sound()
  })

  test('is reported as made even if the event log cannot be read afterwards; so is an adjustment', async () => {
    let written = false
    const { ledger } = one
    const away: Process = {
      ...one,
      ledger: {
        ...ledger,
        submit: async (organizationId, command) => {
          const committed = await ledger.submit(organizationId, command)
          written = true
          return committed
        },
        account: (organizationId) =>
          written ? Promise.reject(new LedgerUnavailable('away')) : ledger.account(organizationId),
      },
    }
    expect(await grantOnce(away, wanted)).toMatchObject({ already: false, balance: parseCredits('100') })
    written = false
    const adjustment = { organizationId: org, amount: parseCredits('-1'), reason: 'x', reference: 'other' }
    expect(await adjust(away, { ...adjustment, ...who })).toMatchObject({
      already: false,
      balance: parseCredits('99'),
    })
  })

  test('with two concurrent amounts uses one of the two', async () => {
    const made = await Promise.allSettled([
      grantOnce(one, { ...grantOf('1'), reference }),
      grantOnce(other, { ...grantOf('2'), reference }),
    ])
    expect(made.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    expect(eventsOf('CreditGranted')).toHaveLength(1)
  })

  test.each(['lose-reply', 'lose-request', 'late', 'unavailable'] as const)(
    'whose process ends between reservation and lot, or never gets the reply (%s), is completed by repeating it',
    async (fault) => {
      let broken = true
      const dying = processOf('dying', {
        onAppend: ({ stream: to }) => (broken && to === stream ? fault : undefined),
      })
      await grantOnce(dying, wanted).catch(() => undefined)
      expect(log.eventsOf(referenceStream(org, reference))).toHaveLength(1)
      broken = false
      await grantOnce(other, wanted)
      while (log.late.length > 0) log.deliverLate()
      await grantOnce(one, wanted)
      expect(eventsOf('CreditGranted')).toHaveLength(1)
      expect(await balance()).toBe('100')
      await sound()
    },
  )

  test('reserves nothing for an organization that does not exist, or for an expired lot', async () => {
    const unregistered = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZY'
    await expect(grantOnce(one, { ...wanted, organizationId: unregistered })).rejects.toThrow(
      'is not registered',
    )
    await expect(grantOnce(one, { ...wanted, expiresAt: '2020-01-01T00:00:00.000Z' })).rejects.toThrow(
      'is in the past',
    )
    expect(log.streams).toEqual([stream])
  })
})

describe('adjustments and voids', () => {
  test('an adjustment adds or removes credits, once per reference, and never removes more than are available', async () => {
    await grant(one, grantOf('10'))
    const asked = { organizationId: org, reason: 'agreed', reference: 'CRN-1', ...who }
    const taken = await adjust(one, { ...asked, amount: parseCredits('-4') })
    expect(taken.adjusted).toMatchObject({ kind: 'adjustment', amount: '-4' })
    expect(await adjust(other, { ...asked, amount: parseCredits('-4') })).toEqual({ ...taken, already: true })
    await expect(adjust(one, { ...asked, reference: 'CRN-2', amount: parseCredits('-7') })).rejects.toThrow(
      '7 credits cannot be taken: 6 are available',
    )
    await adjust(one, { ...asked, reference: undefined, amount: parseCredits('1.5') })
    expect(await balance()).toBe('7.5')
  })

  test('a void removes the rest of its lot and of no other lot', async () => {
    const { granted } = await grant(one, grantOf('10'))
    await grant(one, grantOf('5', { priority: 200 }))
    await call(1, '3')
    const asked = { organizationId: org, grantId: granted.grant_id, reason: 'granted twice', ...who }
    expect((await voidGrant(one, { ...asked, dryRun: true })).adjusted.amount).toBe('-7')
    expect(await balance()).toBe('12')
    expect((await voidGrant(one, asked)).adjusted).toMatchObject({ kind: 'void', amount: '-7' })
    expect((await lotsLeft(one, org)).lots.map(({ left }) => left)).toEqual(['5'])
    await expect(voidGrant(one, asked)).rejects.toThrow('has nothing left, or does not exist')
  })
})

describe('a refund', () => {
  const asked = { organizationId: org, reason: 'wrong answer', ...who }
  const refundsOf = (requestId: string, amount?: string) => ({
    ...asked,
    requestId,
    amount: amount === undefined ? undefined : parseCredits(amount),
  })

  test('returns credits to the lots that paid for the call, the last lot first, and reopens empty ones', async () => {
    const first = (await grant(one, grantOf('2', { priority: 1, expiresAt: '2999-01-01T00:00:00.000Z' })))
      .granted
    const second = (await grant(one, grantOf('10', { priority: 2 }))).granted
    const requestId = await call(1, '5')
    const fills = async (amount?: string) =>
      (await refund(one, refundsOf(requestId, amount))).adjusted.fills.map((fill) => [
        fill.grant_id,
        fill.amount,
      ])
    expect(await fills('1')).toEqual([[second.grant_id, '1']])
    expect(await fills('2.5')).toEqual([
      [second.grant_id, '2'],
      [first.grant_id, '0.5'],
    ])
    expect(await fills()).toEqual([[first.grant_id, '1.5']])
    expect(
      (await lotsLeft(one, org)).lots.map(({ grant_id, left, priority, expires_at }) => ({
        grant_id,
        left,
        priority,
        expires_at,
      })),
    ).toEqual([
      { grant_id: first.grant_id, left: '2', priority: 1, expires_at: '2999-01-01T00:00:00.000Z' },
      { grant_id: second.grant_id, left: '10', priority: 2, expires_at: null },
    ])
    await expect(refund(one, refundsOf(requestId))).rejects.toThrow(
      /has nothing left to refund: it was charged 5; since then: 1 given back at .* \(refund\), 2\.5 given back at .* \(refund\), 1\.5 given back/,
    )
    await sound()
  })

  test('of expired lots becomes a new lot', async () => {
    const expiresAt = new Date(Date.now() + 60_000).toISOString()
    const { granted } = await grant(one, grantOf('5', { expiresAt }))
    const requestId = await call(1, '5')
    const realNow = Date.now
    try {
      Date.now = () => realNow() + 120_000
      const { adjusted } = await refund(one, refundsOf(requestId))
      expect(adjusted).toMatchObject({ amount: '5', fills: [], kind: 'refund' })
      const { lots } = await lotsLeft(one, org)
      expect(lots).toMatchObject([{ grant_id: adjusted.adjustment_id, left: '5', expires_at: null }])
      expect(granted.grant_id).not.toBe(adjusted.adjustment_id)
    } finally {
      Date.now = realNow
    }
  })

  test('with a dry run shows what would happen, and does nothing', async () => {
    await grant(one, grantOf('10'))
    const requestId = await call(1, '4')
    const before = log.eventsOf(stream).length
    const would = await refund(one, { ...refundsOf(requestId, '3'), dryRun: true })
    expect(would).toMatchObject({ revision: null, adjusted: { amount: '3' } })
    expect([would.costs, would.balance].map(formatCredits)).toEqual(['1', '9'])
    expect(log.eventsOf(stream)).toHaveLength(before)
  })

  test('of more than the call still costs, of a free call, or without a call, is refused', async () => {
    await grant(one, grantOf('10'))
    const [paid, free] = [await call(1, '4'), await call(2, '0')]
    await refund(one, refundsOf(paid, '3'))
    await expect(refund(one, refundsOf(paid, '1.5'))).rejects.toThrow(
      `call ${paid} costs 1 now, which is less than 1.5: it was charged 4; since then: 3 given back`,
    )
    await expect(refund(one, refundsOf(free))).rejects.toThrow('cost nothing')
    await expect(refund(one, refundsOf(requestIdOf(9)))).rejects.toThrow(
      'contains no call with the request id',
    )
    await expect(refund(one, { ...refundsOf(requestIdOf(9)), organizationId: undefined })).rejects.toThrow(
      'no statement contains a call with the request id',
    )
    await expect(refund(one, refundsOf('abc'))).rejects.toThrow('is not a request id')
  })

  test('is computed from the log: a row that points to a wrong place or another call changes nothing', async () => {
    await grant(one, grantOf('10'))
    const [first, second] = [await call(1, '4'), await call(2, '1')]
    const rows = [
      { organization_id: org, revision: '3', grant_id: 'none' },
      { organization_id: 'org_01K9ZZZZZZZZZZZZZZZZZZZZZY', revision: '1' },
    ]
    const pool = { query: async () => ({ rows }) } as unknown as Foundation['pool']
    const misled = processOf('misled', undefined, pool)
    expect((await refund(misled, refundsOf(second))).adjusted.amount).toBe('1')
    expect((await refund(misled, refundsOf(first))).adjusted.amount).toBe('4')
  })

  test('of a request that was recorded twice applies to the charged call', async () => {
    await grant(one, grantOf('10'))
    const requestId = requestIdOf(1)
    await one.ledger.submit(org, {
      key: 'broke',
      requestId,
      atMs: Date.now(),
      actor: 'key:Hq3Zk9Lw2Xc7Vb1N',
      kind: 'record',
      call: {
        keyId: 'Hq3Zk9Lw2Xc7Vb1N',
        capability: 'ip_lookup',
        outcome: 'failed',
        code: 'SYS_002',
        facts: { kind: 'refusal', code: 'SYS_002' },
      },
      book: priceBookOf(defaultPriceBook),
    })
    await call(1, '4')
    const broke = { organization_id: org, revision: '2', grant_id: 'none' }
    const pool = { query: async () => ({ rows: [broke] }) } as unknown as Foundation['pool']
    expect(
      (await refund(processOf('by a row', undefined, pool), refundsOf(requestId, '1'))).adjusted.amount,
    ).toBe('1')
    expect((await refund(one, refundsOf(requestId))).adjusted.amount).toBe('3')
  })

  test('by several concurrent requests never exceeds the cost of the call in total', async () => {
    await grant(one, grantOf('1000'))
    for (let n = 0; n < 12; n++) {
      const requestId = await call(n, '4')
      const processes = [one, other, processOf(`third ${n}`)]
      const done = await Promise.allSettled(
        processes.flatMap((process) =>
          ['1', '2', undefined].map((part) => refund(process, refundsOf(requestId, part))),
        ),
      )
      const given = done.flatMap((end) =>
        end.status === 'fulfilled' ? parseCredits(end.value.adjusted.amount) : [],
      )
      // A refund that was never confirmed was not made, and each confirmed refund has its own event.
      expect(given.reduce((sum, part) => sum + part, 0n)).toBe(parseCredits('4'))
    }
    expect(await balance()).toBe('1000')
    await sound()
  })

  test('excludes, and is excluded by, the reversal of a call with an unknown outcome', async () => {
    await grant(one, grantOf('1000'))
    for (let n = 0; n < 8; n++) {
      const requestId = await call(n, '4')
      const [used, charged] = log.eventsOf(stream).slice(-2)
      if (used === undefined || charged === undefined) throw new Error('no call')
      const { data } = decodeEvent(charged)
      const chargeId = 'charge_id' in data ? String(data.charge_id) : ''
      const due = {
        chargeId,
        amount: parseCredits('4'),
        firstEventId: used.id,
        revision: charged.revision,
        calledMs: Date.now(),
        into: [],
      }
      const reverse = () => other.ledger.submit(org, reversalCommand(due, Date.now()))
      const refunded = refund(one, refundsOf(requestId, n % 2 === 0 ? undefined : '1'))
      // A process whose append was refused can find out later that the append was written.
      if (n >= 4) await refunded
      await Promise.allSettled([refunded, reverse()])
    }
    expect(parseCredits(await balance())).toBeLessThanOrEqual(parseCredits('1000'))
    await sound()
  })

  test.each(['lose-reply', 'late'] as const)(
    'whose answer is lost (%s) is not made twice by repeating the whole refund',
    async (fault) => {
      await grant(one, grantOf('10'))
      const requestId = await call(1, '4')
      let broken = true
      const dying = processOf('dying', { onAppend: () => (broken ? fault : undefined) })
      await refund(dying, refundsOf(requestId)).catch(() => undefined)
      broken = false
      await refund(other, refundsOf(requestId)).catch(() => undefined)
      while (log.late.length > 0) log.deliverLate()
      await refund(one, refundsOf(requestId)).catch(() => undefined)
      expect(await balance()).toBe('10')
      await sound()
    },
  )
})

describe('a refund with a reference', () => {
  const asked = { organizationId: org, reason: 'wrong answer', reference: 'CRN-7', ...who }
  const half = parseCredits('1.5')

  test('of a part is made once, no matter how often and from where it is requested', async () => {
    await grant(one, grantOf('10'))
    const requestId = await call(1, '3')
    const first = await refund(one, { ...asked, requestId, amount: half })
    expect(first).toMatchObject({ already: false, adjusted: { amount: '1.5', reference: 'CRN-7' } })
    const used = log
      .eventsOf(stream)
      .map(decodeEvent)
      .find(({ type }) => type === 'KeyUsed')
    expect(first.adjusted.charged_at).toBe(used?.metadata.effective_at)
    // A request id can be in lower case.
    const sentTwice = { requestId: requestId.toLowerCase(), reason: 'sent twice' }
    const again = await refund(other, { ...asked, ...sentTwice, amount: half })
    expect(again).toEqual({ ...first, already: true })
    expect(await refund(other, { ...asked, requestId, amount: half, dryRun: true })).toEqual(again)
    expect(await balance()).toBe('8.5')
    // The second half is refunded with its own reference.
    const rest = { ...asked, requestId, reference: 'CRN-8' }
    expect(await refund(one, { ...rest, amount: half })).toMatchObject({ already: false, costs: 0n })
    expect(await refund(other, { ...rest, amount: half })).toMatchObject({ already: true, costs: 0n })
    expect(await balance()).toBe('10')
    await sound()
  })

  test('of the full current cost is the same with that amount and without an amount', async () => {
    await grant(one, grantOf('10'))
    const requestId = await call(1, '3')
    await refund(one, { ...asked, requestId })
    expect(await refund(other, { ...asked, requestId })).toMatchObject({ already: true })
    expect(await refund(other, { ...asked, requestId, amount: parseCredits('3') })).toMatchObject({
      already: true,
      adjusted: { amount: '3' },
    })
    expect(await balance()).toBe('10')
  })

  test('with another amount, call or kind is refused, and the error names both values', async () => {
    await grant(one, grantOf('10'))
    const [requestId, otherCall] = [await call(1, '3'), await call(2, '3')]
    await refund(one, { ...asked, requestId, amount: half })
    const first = `reference "CRN-7" already names a refund of 1.5 credits of call ${requestId}; you asked for `
    for (const [changed, text] of [
      [{ amount: parseCredits('1') }, `a refund of 1 credit of call ${requestId}`],
      [{ amount: undefined }, `a refund of all that is left of call ${requestId}`],
      [{ requestId: otherCall }, `a refund of 1.5 credits of call ${otherCall}`],
    ] as const)
      for (const dryRun of [true, false])
        await expect(
          refund(other, { ...asked, requestId, amount: half, ...changed, dryRun }),
        ).rejects.toThrow(`${first}${text}`)
    await expect(adjust(other, { ...asked, amount: half })).rejects.toThrow(
      `${first}an adjustment of 1.5 credits`,
    )
    await expect(grantOnce(other, { ...grantOf('1.5'), reference: 'CRN-7' })).rejects.toThrow(first)
    await grantOnce(one, { ...grantOf('1'), reference })
    await expect(refund(other, { ...asked, requestId, amount: half, reference })).rejects.toThrow(
      `already names a grant of 1 credit with priority 100 that never expires; you asked for a refund of 1.5`,
    )
    expect(await balance()).toBe('6.5')
  })

  test('by two concurrent processes is one refund, and one of the processes reports that it existed', async () => {
    await grant(one, grantOf('100'))
    for (let n = 0; n < 8; n++) {
      const requestId = await call(n, '3')
      if (n % 2 === 0) await refund(one, { ...asked, requestId, amount: 500_000n, reference: undefined })
      const same = {
        ...asked,
        requestId,
        amount: n % 3 === 0 ? undefined : half,
        reference: `simultaneous ${n}`,
      }
      const made = await Promise.all([refund(one, same), refund(other, same)])
      expect(made.map(({ already }) => already).sort()).toEqual([false, true])
      expect(made[0]?.adjusted).toEqual(made[1]?.adjusted)
    }
    expect(eventsOf('CreditAdjusted')).toHaveLength(12)
    await sound()
  })

  test('with two concurrent amounts uses one of the two', async () => {
    await grant(one, grantOf('10'))
    const requestId = await call(1, '3')
    const made = await Promise.allSettled([
      refund(one, { ...asked, requestId, amount: half }),
      refund(other, { ...asked, requestId, amount: parseCredits('1') }),
    ])
    expect(made.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    expect(eventsOf('CreditAdjusted')).toHaveLength(1)
  })

  test.each(
    (['lose-reply', 'lose-request', 'late', 'unavailable'] as const).flatMap((fault) =>
      [0, 1].map((before) => [fault, before] as const),
    ),
  )(
    'whose process ends between reservation and refund, or never gets the reply (%s, after %i others), is completed by repeating it',
    async (fault, before) => {
      await grant(one, grantOf('10'))
      const requestId = await call(1, '3')
      if (before > 0)
        await refund(one, { ...asked, requestId, amount: parseCredits('1'), reference: 'CRN-6' })
      let broken = true
      const dying = processOf('dying', {
        onAppend: ({ stream: to }) => (broken && to === stream ? fault : undefined),
      })
      const wanted = { ...asked, requestId, amount: half }
      await refund(dying, wanted).catch(() => undefined)
      expect(log.eventsOf(referenceStream(org, 'CRN-7'))).toHaveLength(1)
      broken = false
      await refund(other, wanted)
      while (log.late.length > 0) log.deliverLate()
      expect(await refund(one, wanted)).toMatchObject({ already: true })
      expect(eventsOf('CreditAdjusted')).toHaveLength(1 + before)
      expect(await balance()).toBe(before > 0 ? '9.5' : '8.5')
      await sound()
    },
  )

  test('that was reserved but not written cannot later exceed what the call still costs', async () => {
    await grant(one, grantOf('10'))
    const requestId = await call(1, '3')
    const dying = processOf('dying', {
      onAppend: ({ stream: to }) => (to === stream ? 'lose-request' : undefined),
    })
    await refund(dying, { ...asked, requestId }).catch(() => undefined)
    await refund(one, { ...asked, requestId, amount: half, reference: undefined })
    await expect(refund(other, { ...asked, requestId })).rejects.toThrow(
      'costs 1.5 now, which is less than 3',
    )
    expect(await balance()).toBe('8.5')
  })

  test('must name a call by its own organization, and reserves nothing if there is nothing to refund', async () => {
    await grant(one, grantOf('10'))
    const free = await call(1, '0')
    await expect(refund(one, { ...asked, requestId: free })).rejects.toThrow('cost nothing')
    expect(log.streams).toEqual([stream])
  })
})

test("a lot that an adjustment or a refund opened has that operation's reference", async () => {
  await adjust(one, {
    organizationId: org,
    amount: parseCredits('4'),
    reason: 'goodwill',
    reference: 'G-1',
    ...who,
  })
  expect((await lotsLeft(one, org)).lots).toMatchObject([{ left: '4', reference: 'G-1' }])
  await voidGrant(one, {
    organizationId: org,
    grantId: (await lotsLeft(one, org)).lots[0]?.grant_id ?? '',
    reason: 'x',
    ...who,
  })
  const expiresAt = new Date(Date.now() + 60_000).toISOString()
  await grant(one, grantOf('5', { expiresAt }))
  const requestId = await call(1, '5')
  const realNow = Date.now
  try {
    Date.now = () => realNow() + 120_000
    await refund(one, { organizationId: org, requestId, reason: 'wrong', reference: 'CRN-9', ...who })
    expect((await lotsLeft(one, org)).lots).toMatchObject([{ left: '5', reference: 'CRN-9' }])
  } finally {
    Date.now = realNow
  }
})
