/** Re-rates: the content of a plan, the effect of applying it, and the refusals. */
import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { pino } from 'pino'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { abandonRerate, approveRerate } from '../../src/administration/rerates/apply.ts'
import { checkPlanFile, planFileOf, provedRun } from '../../src/administration/rerates/proof.ts'
import type { ReratePlan } from '../../src/administration/rerates/rerates.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { eventIdOf } from '../../src/event-log/stored-event.ts'
import { ledgerStream, rerateStream } from '../../src/events/streams.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { LedgerOutcomeUnknown } from '../../src/ledger/command.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { randomCases } from '../support/exhaustive.ts'
import {
  apply,
  approved,
  balance,
  beginAnew,
  call,
  costOf,
  eventsOf,
  instant,
  opened,
  org,
  plan,
  prices,
  processOf,
  refund,
  type Scene,
  startMs,
  world,
} from './rerate-scene.ts'

beforeEach(beginAnew)

describe('a plan', () => {
  test('shows the difference from the current cost of calls, by SKU and rule, and changes nothing', async () => {
    const scene = await opened('10')
    const [one] = [await call(scene), await call(scene), await call(scene, false)]
    await refund(scene, one, '0.25')
    const before = eventsOf().length
    const { ledgers, proposed } = await plan(scene, prices('0.5', '0.1'))
    expect(ledgers).toMatchObject([
      {
        organization_id: org,
        calls: 3,
        calls_affected: 3,
        given: '1',
        taken: '0.1',
        differences: [
          { sku: 'ip_lookup', rule: 'ip_lookup.located', calls: 2, now: '2', rerated: '1' },
          { sku: 'ip_lookup', rule: null, calls: 1, now: '-0.25', rerated: '-0.25' },
          { sku: 'ip_lookup', rule: 'ip_lookup.not_located', calls: 1, now: '0', rerated: '0.1' },
        ],
        balance: '8.25',
        uncollected: '0',
        unaffordable: { calls: 0, first: [] },
        refunded: {
          calls: 1,
          given_back: '0.25',
          first: [{ request_id: one, given_back: '0.25', now: '0.75', rerated: '0.25' }],
        },
      },
    ])
    expect(proposed.signature.signed_by).toBe('hmac')
    expect(eventsOf()).toHaveLength(before)
  })

  test('covers only calls effective in the range', async () => {
    const scene = await opened('10')
    for (let n = 0; n < 5; n++) await call(scene)
    // Calls are at 1 s, 2 s, …, and the range excludes its end.
    expect((await plan(scene, prices('2'), 3_000)).ledgers[0]?.calls).toBe(2)
  })

  test('lists calls that could not have been paid, in the order they were made', async () => {
    const scene = await opened('5')
    for (let n = 0; n < 4; n++) await call(scene)
    const { ledgers } = await plan(scene, prices('2'))
    expect(ledgers[0]).toMatchObject({
      taken: '4',
      available: '1',
      uncollected: '3',
      unaffordable: { calls: 2, first: ['r2', 'r3'] },
    })
  })

  test("uses an organization's own price as of the time of the call", async () => {
    const scene = await opened('10')
    const override = { atMs: startMs, actor: 'cli', kind: 'override_price', sku: 'ip_lookup' } as const
    const set = { ...override, amount: parseCredits('0.5'), effectiveFrom: instant(0) }
    const { revision } = await scene.ledger.submit(org, { key: 'own', ...set })
    const own = await call(scene)
    const gone = { kind: 'withdraw_override', overrideId: randomUUID(), overrideRevision: revision } as const
    await scene.ledger.submit(org, { ...override, key: 'gone', ...gone, reason: 'over' })
    const after = await call(scene)
    await apply(scene, await approved(scene, await plan(scene, prices('2'))))
    expect([await costOf(scene, own), await costOf(scene, after)]).toEqual([500_000n, 2_000_000n])
  })
})

describe('applying a plan', () => {
  test('makes every call in the range cost the new price minus its refund, with one adjustment', async () => {
    const scene = await opened('10')
    const made = [await call(scene), await call(scene), await call(scene, false)]
    await refund(scene, made[0] ?? '', '0.25')
    const found = await apply(scene, await approved(scene, await plan(scene, prices('0.5', '0.1'))))
    expect(found.applied).toMatchObject({ applied: 1, left_out: 0, amount: '0.9', uncollected: '0' })
    expect(await balance(scene)).toBe('9.15')
    expect(await Promise.all(made.map((one) => costOf(scene, one)))).toEqual([250_000n, 500_000n, 100_000n])
    expect((await plan(scene, prices('0.5', '0.1'))).proposed.calls_affected).toBe(0)
  })

  test('is refused a second time, before an approval, and after the plan was abandoned', async () => {
    const scene = await opened('10')
    await call(scene)
    const planned = await plan(scene, prices('2'))
    await expect(apply(scene, planned.proposed.run)).rejects.toThrow('is not approved')
    const run = await approved(scene, planned)
    await apply(scene, run)
    await expect(apply(scene, run)).rejects.toThrow('is applied only once')
    const other = await approved(scene, await plan(scene, prices('3')))
    await abandonRerate(scene, { run: other, reason: 'no', actor: 'user:ann' })
    await expect(apply(scene, other)).rejects.toThrow('was abandoned')
  })

  test('cannot be approved by its planner, or by a label', async () => {
    const scene = await opened('10')
    await call(scene)
    const { run } = (await plan(scene, prices('2'))).proposed
    const rule = { run, twoPerson: true }
    await expect(approveRerate(scene, { ...rule, actor: 'user:ann' })).rejects.toThrow('another person')
    await expect(approveRerate(scene, { ...rule, actor: 'cli:bob' })).rejects.toThrow('an unverified name')
  })

  test('takes the available credits, reports the rest, and lists the calls whose increase was not collected', async () => {
    const scene = await opened('5')
    const made = [await call(scene), await call(scene), await call(scene), await call(scene)]
    const found = await apply(scene, await approved(scene, await plan(scene, prices('1.7'))))
    expect(found.applied).toMatchObject({ amount: '-1', uncollected: '1.8' })
    expect(await balance(scene)).toBe('0')
    expect(await Promise.all(made.map((one) => costOf(scene, one)))).toEqual([
      1_700_000n,
      1_300_000n,
      1_000_000n,
      1_000_000n,
    ])
  })

  test('excludes, by name, an organization whose calls have been corrected since the plan', async () => {
    const scene = await opened('10')
    const one = await call(scene)
    const run = await approved(scene, await plan(scene, prices('2')))
    await refund(scene, one, '0.5')
    const { done, applied } = await apply(scene, run)
    expect(done.get(org)).toMatchObject({
      reason: `call ${one} in the range has since been corrected (refund)`,
    })
    expect(applied).toMatchObject({ applied: 0, left_out: 1, amount: '0' })
    expect(await balance(scene)).toBe('9.5')
  })

  test('ignores corrections of other calls, or of the balance', async () => {
    const scene = await opened('10')
    await call(scene)
    const run = await approved(scene, await plan(scene, prices('2'), 1_500))
    const later = await call(scene)
    await refund(scene, later, '0.5')
    expect((await apply(scene, run)).applied).toMatchObject({ applied: 1, amount: '-1' })
  })

  test('by two concurrent processes adjusts each ledger once', async () => {
    const scene = await opened('10')
    await call(scene)
    const run = await approved(scene, await plan(scene, prices('2')))
    await Promise.allSettled([apply(processOf('b'), run), apply(processOf('c'), run)])
    expect(eventsOf().filter(({ type }) => type === 'CreditAdjusted')).toHaveLength(1)
    expect((await provedRun(scene, run)).applied).toMatchObject({ applied: 1, amount: '-1' })
  })

  test('continues after an interruption at any write', async () => {
    const scene = await opened('10')
    await call(scene)
    const run = await approved(scene, await plan(scene, prices('2')))
    for (const failing of [ledgerStream(org), rerateStream(run)]) {
      const dying = processOf(`dying/${failing}`, (eventLog) => ({
        ...eventLog,
        append: async (stream, expected, events) => {
          const appended = await eventLog.append(stream, expected, events)
          if (stream === failing) throw new TypeError('killed')
          return appended
        },
      }))
      await expect(apply(dying, run)).rejects.toThrow()
    }
    expect((await apply(processOf('b'), run)).applied).toMatchObject({ applied: 1, amount: '-1' })
    expect(await balance(processOf('c'))).toBe('8')
  })

  test.each(['abandoned', 'abandoned, and applied again'])(
    'and %s after a kill between the adjustment and its record, still shows the cost of calls',
    async (how) => {
      const scene = await opened('10')
      const one = await call(scene)
      const run = await approved(scene, await plan(scene, prices('2')))
      const killed = (failing: (type: string | undefined) => boolean) =>
        processOf('killed', (eventLog) => ({
          ...eventLog,
          append: async (stream, expected, events) => {
            if (stream === rerateStream(run) && failing(events[0]?.type)) throw new TypeError('killed')
            return eventLog.append(stream, expected, events)
          },
        }))
      await expect(
        apply(
          killed(() => true),
          run,
        ),
      ).rejects.toThrow('killed')
      await expect(costOf(scene, one)).rejects.toThrow('did not finish there')
      const dying = how === 'abandoned' ? scene : killed((type) => type !== 'RerateAbandoned')
      await abandonRerate(dying, { run, reason: 'no', actor: 'user:ann' }).catch(() => undefined)
      await expect(apply(scene, run)).rejects.toThrow('was abandoned')
      expect(await costOf(scene, one)).toBe(2_000_000n)
      expect(await balance(scene)).toBe('8')
      expect((await provedRun(scene, run)).done.get(org)).toMatchObject({ amount: '-1', uncollected: '0' })
    },
  )
})

test.each(['0.4', '3', '0'])(
  'a call that was never answered, and re-rated at %s before that was known, costs nothing in the end',
  async (price) => {
    const scene = await opened('10')
    let [losing, away] = [true, false]
    const eventLog = world.log.client('cut off', {
      onAppend: () => {
        if (!losing) return undefined
        away = true
        return 'lose-reply'
      },
      onRead: () => {
        return away ? 'unavailable' : undefined
      },
    })
    const cutOff = createLedger({
      eventLog,
      snapshot: async () => null,
      logger: pino({ level: 'silent' }),
      clock: { now: () => world.nowMs, monotonic: () => performance.now() },
      limits: { retryPauseMs: 1, unknownRetryMs: 20, unavailableRetryMs: 100, callerWaitMaxMs: 50 },
    })
    await expect(call({ ...scene, ledger: cutOff })).rejects.toThrow(LedgerOutcomeUnknown)
    await apply(scene, await approved(scene, await plan(scene, prices(price))))
    expect(await balance(scene)).toBe(formatCredits(parseCredits('10') - parseCredits(price)))
    losing = away = false
    await vi.waitFor(async () => expect(await balance(scene)).toBe('10'), { timeout: 30_000 })
    await call({ ...scene, ledger: cutOff })
    expect(await balance(scene)).toBe('9')
    expect(await costOf(scene, 'r0')).toBe(0n)
  },
)

describe('a changed plan is refused, and the error names the change:', () => {
  let scene: Scene
  let planned: ReratePlan
  beforeEach(async () => {
    scene = await opened('10')
    await call(scene)
    planned = await plan(scene, prices('2'))
  })

  test('an event of the plan', async () => {
    const { run } = planned.proposed
    const changed = {
      ...scene,
      eventLog: {
        ...scene.eventLog,
        read: async (...[stream, options]: Parameters<EventLog['read']>) =>
          (await scene.eventLog.read(stream, options)).map((event) =>
            event.type === 'RerateLedgerPlanned'
              ? { ...event, data: event.data.replace('"taken":"1"', '"taken":"9"') }
              : event,
          ),
      },
    }
    await expect(provedRun(changed, run)).rejects.toThrow(
      `event 0 of rerate-${run} (RerateLedgerPlanned) was changed`,
    )
  })

  test('its signature', async () => {
    const others = { ...scene, secrets: createSecrets('another secret, that is long enough to be one') }
    await expect(provedRun(others, planned.proposed.run)).rejects.toThrow('names hmac as the signer')
  })

  test('a member of its file', async () => {
    const found = await provedRun(scene, planned.proposed.run)
    const file = JSON.stringify(planFileOf(planned))
    checkPlanFile(found, JSON.parse(file))
    for (const [from, to, what] of [
      ['"taken":"1","differences"', '"taken":"2","differences"', `its part about ${org}`],
      ['priced anew', 'priced', 'plan differs'],
      ['"hmac"', '"none"', 'signature'],
    ] as const) {
      expect(file).toContain(from)
      expect(() => checkPlanFile(found, JSON.parse(file.replace(from, to)))).toThrow(what)
    }
  })
})

test('after any refunds and re-rates, balance and calls agree with every run', async () => {
  const price = fc.integer({ min: 0, max: 30 }).map((tenths) => String(tenths / 10))
  const step = fc.oneof(
    fc.record({ kind: fc.constant('call' as const), located: fc.boolean() }),
    fc.record({
      kind: fc.constantFrom('refund' as const, 'reversal' as const),
      of: fc.nat(),
      part: fc.integer({ min: 1, max: 10 }),
    }),
    fc.record({ kind: fc.constant('rerate' as const), located: price, other: price, toMs: fc.nat(20_000) }),
  )
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 3, maxLength: 14 }),
      fc.integer({ min: 1, max: 20 }),
      async (steps, credits) => {
        beginAnew()
        const scene = await opened(String(credits))
        const made: string[] = []
        for (const one of steps) {
          if (one.kind === 'call') made.push(await call(scene, one.located))
          const isGiving = one.kind === 'refund' || one.kind === 'reversal'
          const request = isGiving ? made[one.of % Math.max(1, made.length)] : undefined
          if (isGiving && request !== undefined) {
            const now = (await costOf(scene, request)) ?? 0n
            const charged = eventsOf().some(
              ({ data }) => 'charge_id' in data && data.charge_id === eventIdOf(org, request, 1),
            )
            const amount = one.kind === 'reversal' ? now : (now * BigInt(one.part)) / 10n
            if (charged && amount > 0n) await refund(scene, request, formatCredits(amount), one.kind)
          }
          if (one.kind === 'rerate') {
            const planned = await plan(scene, prices(one.located, one.other), one.toMs).catch(() => null)
            if (planned !== null) await apply(scene, await approved(scene, planned))
          }
          let spent = 0n
          for (const requestId of made) spent += (await costOf(scene, requestId)) ?? 0n
          expect(await balance(scene)).toBe(formatCredits(parseCredits(String(credits)) - spent))
        }
      },
    ),
    { numRuns: randomCases(40) },
  )
})
