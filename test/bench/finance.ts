import pg from 'pg'
import { ulid } from 'ulid'
import { projections } from '../../projections/index.ts'
import { reconcileLedgers } from '../../src/administration/ledgers/reconcile.ts'
import { planRerate, pricesNamed } from '../../src/administration/rerates/rerates.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { writeHistory } from './ledger-history.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { withFoundation } from './store.ts'

/** The slow steps at the end of a month: the plan of a re-rate over every call, and a complete reconciliation. */

const organizations = 4
const roundsMax = 3
const own = new Set(['accounts', 'ledger_lines'])

export const finance = ({ events, rounds, begin, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation }) => {
    const { url, eventLog, secrets } = foundation
    const ids = Array.from({ length: organizations }, () => `org_${ulid()}`)
    const ledgers = ids.map((organizationId) => ({
      organizationId,
      events: Math.round(events / organizations),
    }))
    await writeHistory(url, ledgers)
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    await client.query('update projection_checkpoints set position = (select position from log_head)')
    await client.end()
    await rebuildProjections({
      url,
      eventLog,
      seal: secrets.rowSeal,
      projections: projections.filter(({ name }) => own.has(name)),
    })
    begin()
    const from = '2026-01-01T00:00:00.000Z'
    const under = defaultPriceBook.rules.map((rule) => ({
      ...rule,
      amount: rule.sku === null ? '0' : '0.75',
    }))
    const planned: number[] = []
    const reconciled: number[] = []
    for (let round = 0; round < Math.min(rounds, roundsMax); round++) {
      let startedAt = performance.now()
      const ownFrom = process.cpuUsage()
      const book = await pricesNamed(foundation, { kind: 'rules', document: under }, { from })
      const { proposed } = await planRerate(
        foundation,
        {
          ...{ book, from, to: '2026-11-01T00:00:00.000Z', organizationId: null, organizations: ids },
          ...{ reason: 'benchmark', actor: 'cli' },
        },
        () => undefined,
      )
      const plan = process.cpuUsage(ownFrom)
      planned.push((proposed.calls * 1_000) / (performance.now() - startedAt))
      startedAt = performance.now()
      const found = await reconcileLedgers(foundation, { organizations: ids })
      const calls = found.reduce((sum, one) => sum + one.calls, 0)
      const differences = found.reduce((sum, one) => sum + one.differences, 0)
      if (differences > 0 || calls !== proposed.calls)
        throw new Error(`finance: ${differences} differences, ${calls} of ${proposed.calls} calls`)
      reconciled.push((calls * 1_000) / (performance.now() - startedAt))
      report(
        `finance: ${calls} calls, ${planned.at(-1)?.toFixed(0)} planned/s, ${reconciled.at(-1)?.toFixed(0)} reconciled/s; processor time of a planned call ${((plan.user + plan.system) / calls).toFixed(1)} µs here`,
      )
    }
    return [
      figureRow('re-rate plan', median(planned), 'calls/s', { least: 100_000 }),
      figureRow('reconciliation, whole', median(reconciled), 'calls/s', { least: 100_000 }),
    ]
  })
