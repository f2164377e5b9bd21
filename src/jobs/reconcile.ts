import pg from 'pg'
import type { Logger } from 'pino'
import { unbalancedAccounts } from '../../projections/ledger-lines.ts'
import { organizationsOf } from '../administration/ledgers.ts'
import { reconcileLedgers } from '../administration/reconcile.ts'
import { recordReconciled } from '../administration/reconciliations.ts'
import type { Foundation } from '../foundation/foundation.ts'

type Unbalanced = {
  readonly organization_id: string
  readonly movements_micro: string
  readonly balance_micro: string
}

const deadlineMs = 30 * 60_000

/**
 * Compares two independent folds of the ledgers: the movements of every statement must add up to its account. Returns
 * the accounts where they do not, which must be none; null when the two projections stand at different positions.
 */
export const reconcile = async (url: string, logger: Logger): Promise<Unbalanced[] | null> => {
  // A connection of its own: the sums take as long as the statements are long, and must not hold up other queries.
  const client = new pg.Client({
    connectionString: url,
    statement_timeout: deadlineMs,
    application_name: 'reconcile',
  })
  client.on('error', () => undefined)
  await client.connect()
  try {
    await client.query('begin isolation level repeatable read read only')
    const positions = await client.query(
      `select 1 from projection_checkpoints where name in ('accounts', 'ledger_lines') group by position having count(*) = 2`,
    )
    if (positions.rows.length === 0) return null
    const { text, values } = unbalancedAccounts()
    const { rows } = await client.query<Unbalanced>(text, [...values])
    if (rows.length > 0) logger.fatal({ accounts: rows }, 'reconciliation: statements and balances disagree')
    return rows
  } finally {
    await client.query('rollback').catch(() => undefined)
    await client.end()
  }
}

/** Ten million calls take some minutes; a day's are a part of them. */
export const reconcileSecondsMax = 6 * 3_600

/**
 * Compares what came since ledgers were last found to agree: log, read models and tariff. The result is an event; differences are
 * logged besides. Returns how many there are, which must be none.
 */
export const reconcileOnward = async (foundation: Foundation, logger: Logger): Promise<number> => {
  const organizations = await organizationsOf(foundation)
  const found = await reconcileLedgers(foundation, { organizations, onward: true })
  await recordReconciled(foundation, found, { whole: false, actor: 'system' })
  const differing = found.filter(({ differences }) => differences > 0)
  for (const { organizationId, differences, named } of differing)
    logger.fatal(
      { organizationId, differences, named },
      'reconciliation: log, read models and tariff disagree; see "ledger reconcile"',
    )
  return differing.reduce((sum, { differences }) => sum + differences, 0)
}
