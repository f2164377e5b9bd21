/**
 * The event log, the read models and the tariff agree about every call. After a change in one of them, reconciliation names the
 * affected request.
 */
import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { reconcileLedgers } from '../../src/administration/ledgers/reconcile.ts'
import { recordReconciled } from '../../src/administration/ledgers/reconciliations.ts'
import { setPriceOverride } from '../../src/administration/prices/price-overrides.ts'
import { catchUp } from '../../src/administration/projections/catch-up.ts'
import { applyRerate, approveRerate } from '../../src/administration/rerates/apply.ts'
import { planRerate, pricesNamed } from '../../src/administration/rerates/rerates.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { decodeEvent, encodeEvent } from '../../src/event-log/stored-event.ts'
import { rerateStream } from '../../src/events/streams.ts'
import type { Reconciled } from '../../src/ledger/check/reconcile.ts'
import { prices } from '../administration/rerate-scene.ts'
import { houseForFile, places } from '../support/house.ts'
import { logger } from '../support/logger.ts'

const requests: string[] = []

const look = async (): Promise<void> => {
  const { headers } = await house.lookup(partner, { ip: places.london })
  requests.push(headers.get('x-request-id') ?? '')
}

const reconcile = async (options: { onward?: boolean } = {}): Promise<Reconciled> => {
  await catchUp(house.foundation, logger)
  const [found] = await reconcileLedgers(house.foundation, {
    organizations: [partner.organizationId],
    ...options,
  })
  if (found === undefined) throw new Error('nothing was reconciled')
  return found
}

const house = await houseForFile()
const partner = await house.partner({ credits: '100' })
for (let n = 0; n < 3; n++) await look()
await house.lookup(partner, { ip: '10.0.0.1' })
await setPriceOverride(house.foundation, {
  organizationId: partner.organizationId,
  sku: 'ip_lookup',
  amount: parseCredits('0.25'),
  effectiveFrom: new Date().toISOString(),
  reason: 'contract',
  actor: 'cli',
})
await look()
const atFirst = await reconcile()

const rowsChanged = async (set: string, request: string, run: () => Promise<void>): Promise<void> => {
  const [before] = await house.query('select * from ledger_lines where request_id = $1', [request])
  await house.query(`update ledger_lines_v2 set ${set} where request_id = $1`, [request])
  await run()
  await house.query('update ledger_lines_v2 set amount_micro = $2, rule = $3 where request_id = $1', [
    request,
    before?.amount_micro,
    before?.rule,
  ])
}

describe('reconciling', () => {
  test('counts each SKU in three ways, and finds no difference', () => {
    const { differences, named, sums, calls } = atFirst
    expect({ differences, named, calls }).toEqual({ differences: 0, named: [], calls: 5 })
    const credits = (text: string): bigint => parseCredits(text)
    expect(Object.fromEntries(sums)).toEqual({
      '(grant)': { log: credits('100'), projections: credits('100'), tariff: 0n },
      ip_lookup: { log: credits('3.25'), projections: credits('3.25'), tariff: credits('3.25') },
    })
  })

  test('names the request whose row differs from the log', async () => {
    const [request = ''] = requests
    await rowsChanged('amount_micro = -2000000', request, async () => {
      expect((await reconcile()).named).toEqual([
        `request ${request}: the log says -1 by ip_lookup.located, ledger_lines say -2`,
      ])
    })
    await rowsChanged("rule = 'profile.fresh'", request, async () => {
      expect((await reconcile()).differences).toBe(1)
    })
    expect((await reconcile()).differences).toBe(0)
  })

  test('names the total of an account whose row differs from the log, and any other changed part', async () => {
    const account = async (set: string, run: () => Promise<void>): Promise<void> => {
      const [before] = await house.query('select * from accounts where organization_id = $1', [
        partner.organizationId,
      ])
      await house.query(`update accounts_v1 set ${set} where organization_id = $1`, [partner.organizationId])
      await run()
      await house.query(
        'update accounts_v1 set charged_micro = $2, adjusted_micro = $3, name = $4 where organization_id = $1',
        [partner.organizationId, before?.charged_micro, before?.adjusted_micro, before?.name],
      )
    }
    await account('charged_micro = charged_micro + 1000000, adjusted_micro = 1', async () => {
      expect((await reconcile()).named).toEqual([
        expect.stringMatching(
          /^the log results in charged 3.25 at revision \d+, but the row in accounts has 4.25$/,
        ),
        expect.stringMatching(
          /^the log results in adjusted 0 at revision \d+, but the row in accounts has 0.000001$/,
        ),
      ])
    })
    await account(`name = 'Another'`, async () => {
      expect((await reconcile()).named).toEqual([
        expect.stringMatching(/^its row in accounts at revision \d+ is not as the projector wrote it$/),
      ])
    })
    expect((await reconcile()).differences).toBe(0)
  })

  test('resumes after the last position where a ledger agreed, and reads differences again', async () => {
    // The first checkpoint announces the key that signs the position.
    await house.foundation.checkpoints.make()
    await recordReconciled(house.foundation, [await reconcile()], { whole: true, actor: 'cli' })
    await look()
    const last = requests.at(-1) ?? ''
    // The organization has its own price, so its ledger is read in full.
    expect(await reconcile({ onward: true })).toMatchObject({ from: 0, calls: 6, differences: 0 })
    const other = await house.partner({ credits: '10' })
    await house.lookup(other, { ip: places.london })
    const onward = async () => {
      await catchUp(house.foundation, logger)
      return reconcileLedgers(house.foundation, { organizations: [other.organizationId], onward: true })
    }
    await recordReconciled(house.foundation, await onward(), { whole: false, actor: 'system' })
    await house.lookup(other, { ip: places.london })
    expect(await onward()).toMatchObject([{ calls: 1, differences: 0 }])
    await house.query(
      'update ledger_lines_v2 set amount_micro = 0 where ledger = ledger_key($1) and kind = $2',
      [other.organizationId, 'call'],
    )
    const differing = await onward()
    expect(differing).toMatchObject([{ calls: 1, differences: 1 }])
    // Someone with access to the database claims that everything agreed, unsigned or with the signature of another event.
    const { organizationId: organization_id } = other
    const [{ through } = { through: 0 }] = differing
    const genuine = (await house.recorded())
      .map(decodeEvent)
      .findLast(
        ({ type, recorded }) => type === 'LedgersReconciled' && recorded.stream.startsWith('reconciled-'),
      )
    if (genuine?.type !== 'LedgersReconciled') throw new Error('nothing was reconciled')
    for (const signed of [null, genuine.data.signed]) {
      const data = { ...genuine.data, ledgers: [{ organization_id, revision: through }], signed }
      await appendNext(house.foundation.eventLog, genuine.recorded.stream, [
        encodeEvent(
          { type: 'LedgersReconciled', data },
          { id: randomUUID(), actor: 'system', effectiveAt: new Date().toISOString() },
        ),
      ])
      expect(await onward()).toMatchObject([{ calls: 1, differences: 1 }])
    }
    await recordReconciled(house.foundation, differing, { whole: false, actor: 'system' })
    expect(await onward()).toMatchObject([{ calls: 1, differences: 1 }])
    expect(last).not.toBe('')
  })

  test('reads a re-rate once for all its ledgers', async () => {
    const begun = new Date().toISOString()
    const others = [await house.partner({ credits: '10' }), await house.partner({ credits: '10' })]
    for (const other of others) await house.lookup(other, { ip: places.london })
    const organizations = others.map(({ organizationId }) => organizationId)
    const { foundation } = house
    const { proposed } = await planRerate(
      foundation,
      {
        book: await pricesNamed(foundation, { kind: 'rules', document: prices('0.5') }, { from: begun }),
        from: begun,
        to: new Date().toISOString(),
        organizationId: null,
        organizations,
        reason: 'a lower price',
        actor: 'user:ann',
      },
      () => undefined,
    )
    const act = { run: proposed.run, actor: 'user:bob', twoPerson: true }
    await approveRerate(foundation, act)
    await applyRerate(foundation, act)
    await catchUp(foundation, logger)
    let reads = 0
    const { eventLog } = foundation
    const counting = {
      ...foundation,
      eventLog: {
        ...eventLog,
        read: async (...[stream, options]: Parameters<typeof eventLog.read>) => {
          if (stream === rerateStream(proposed.run)) reads++
          return eventLog.read(stream, options)
        },
      },
    }
    await reconcileLedgers(counting, { organizations: organizations.slice(0, 1) })
    const forOne = reads
    const found = await reconcileLedgers(counting, { organizations })
    expect(found.map(({ differences, sums }) => [differences, sums.get('(adjustment)')?.log])).toEqual([
      [0, parseCredits('0.5')],
      [0, parseCredits('0.5')],
    ])
    expect(forOne).toBeGreaterThan(0)
    expect(reads).toBe(2 * forOne)
  })

  test('names a charge that does not follow from the tariff', async () => {
    const [request = ''] = requests
    const { eventLog } = house.foundation
    const changed = {
      ...house.foundation,
      eventLog: {
        ...eventLog,
        read: async (...[stream, options]: Parameters<typeof eventLog.read>) =>
          (await eventLog.read(stream, options)).map((event) =>
            event.type === 'CreditCharged' && event.metadata.includes(request)
              ? { ...event, data: event.data.replaceAll('"amount":"1"', '"amount":"2"') }
              : event,
          ),
      },
    }
    const [found] = await reconcileLedgers(changed, { organizations: [partner.organizationId] })
    expect(found?.named).toContain(
      `request ${request}: the log charges 2, but its facts, the tariff and price book 1 result in 1`,
    )
    expect(found?.named).toContain(
      `request ${request}: the log says -2 by ip_lookup.located, ledger_lines say -1`,
    )
  })
})
