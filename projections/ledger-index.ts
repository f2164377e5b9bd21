import type { DomainEvent } from '../src/events/catalogue.ts'
import { lastRevision } from './ledger-lines.ts'
import { microOf } from './micro.ts'
import type { ProjectedEvent, Query, StatelessProjection } from './projection.ts'
import { insert, type RowOf, type Table, upsert } from './rows.ts'
import { addUsage, organizationOf, type UsageRow, usageOf, usageTable } from './usage.ts'

/**
 * Movements of credits are added up in blocks of this many revisions, so that the balance at any revision can be calculated from few rows.
 */
const blockRevisions = 1_024
const blocksTable = {
  name: 'movement_blocks',
  columns: {
    organization_id: 'text not null',
    block: 'bigint not null',
    amount_micro: 'numeric not null',
  },
  key: ['organization_id', 'block'],
} as const satisfies Table

const correctionsTable = {
  name: 'corrections',
  columns: {
    organization_id: 'text not null',
    revision: 'bigint not null',
    // The corrected charge. Null: the event corrects the balance, or many charges.
    adjusts: 'uuid',
    rerate_run: 'text',
  },
  key: ['organization_id', 'revision'],
  indexes: [
    'create index on $table (adjusts) where adjusts is not null',
    'create index on $table (organization_id, revision) where rerate_run is not null',
  ],
} as const satisfies Table

const replaysTable = {
  name: 'replays',
  columns: {
    organization_id: 'text not null',
    repeats: 'text not null',
    revision: 'bigint not null',
  },
  key: ['organization_id', 'repeats', 'revision'],
} as const satisfies Table

/** The revision up to which each ledger is in these tables. */
const indexedTable = {
  name: 'indexed_ledgers',
  columns: { organization_id: 'text not null', revision: 'bigint not null' },
  key: ['organization_id'],
} as const satisfies Table

const thresholdsTable = {
  name: 'balance_thresholds',
  columns: { organization_id: 'text not null', amount_micro: 'bigint' },
  key: ['organization_id'],
} as const satisfies Table

/**
 * Revisions and sums for answering questions about a call, a day or an instant without reading the whole ledger. Readers verify each
 * revision in the ledger itself.
 */
export const ledgerIndex: StatelessProjection = {
  name: 'ledger_index',
  version: 1,
  prefixes: ['ledger-'],
  money: true,
  tables: [usageTable, blocksTable, correctionsTable, replaysTable, thresholdsTable, indexedTable],
  fold: (events) => {
    const usage = new Map<string, UsageRow>()
    const blocks = new Map<string, BlockRow>()
    const corrections: RowOf<typeof correctionsTable>[] = []
    const replays: RowOf<typeof replaysTable>[] = []
    const thresholds = new Map<string, RowOf<typeof thresholdsTable>>()
    const indexed = new Map<string, RowOf<typeof indexedTable>>()
    for (const event of events) {
      for (const used of usageOf(event)) addUsage(usage, used)
      const moved = movementOf(event)
      if (moved !== 0n) addMovement(blocks, event, moved)
      const organization_id = organizationOf(event)
      const { revision } = event
      indexed.set(organization_id, { organization_id, revision })
      if (event.type === 'CreditAdjusted') {
        const { adjusts, rerate_run } = event.data
        corrections.push({ organization_id, revision, adjusts, rerate_run })
      } else if (event.type === 'KeyUsed' && event.metadata.repeats !== undefined)
        replays.push({ organization_id, repeats: event.metadata.repeats, revision })
      else if (event.type === 'BalanceThresholdSet') {
        const { amount } = event.data
        const amount_micro = amount === null ? null : microOf(amount)
        thresholds.set(organization_id, { organization_id, amount_micro })
      }
    }
    return [
      upsert(usageTable, [...usage.values()], {
        calls: 't.calls + excluded.calls',
        charged_micro: 't.charged_micro + excluded.charged_micro',
      }),
      upsert(blocksTable, [...blocks.values()], { amount_micro: 't.amount_micro + excluded.amount_micro' }),
      insert(correctionsTable, corrections),
      insert(replaysTable, replays),
      upsert(thresholdsTable, [...thresholds.values()]),
      upsert(indexedTable, [...indexed.values()]),
    ]
  },
}

type BlockRow = RowOf<typeof blocksTable> & { readonly amount_micro: bigint }

export const movementOf = (event: DomainEvent): bigint => {
  switch (event.type) {
    case 'CreditGranted':
    case 'CreditAdjusted':
      return microOf(event.data.amount)
    case 'CreditExpired':
    case 'CreditCharged':
      return -microOf(event.data.amount)
    default:
      return 0n
  }
}

const addMovement = (blocks: Map<string, BlockRow>, event: ProjectedEvent, moved: bigint): void => {
  const organization_id = organizationOf(event)
  // A charge is on the statement line of its call, which is the previous revision.
  const line = event.type === 'CreditCharged' ? event.revision - 1 : event.revision
  const block = Math.floor(line / blockRevisions)
  const cell = `${organization_id} ${block}`
  const before = blocks.get(cell)?.amount_micro ?? 0n
  blocks.set(cell, { organization_id, block, amount_micro: before + moved })
}

/** The sum of a ledger's movements before a revision. The revision must have a line on the statement. */
export const movedBefore = (
  organizationId: string,
  revision: number,
): Query<{ amount_micro: string | null }> => {
  const block = Math.floor(revision / blockRevisions)
  return {
    text: `select (coalesce((select sum(amount_micro) from movement_blocks where organization_id = $1 and block < $2), 0)
                 + coalesce((select sum(amount_micro) from ledger_lines
                              where ledger = ledger_key($1) and revision >= $3 and revision < $4), 0))::text as amount_micro`,
    values: [organizationId, block, block * blockRevisions, revision],
  }
}

/** The corrections of a charge, and the re-rates, after a revision. */
export const correctionsAfter = (
  organizationId: string,
  { revision, chargeId, max }: { revision: number; chargeId: string | null; max: number },
): Query<{ revision: string }> => ({
  text: `select found.revision::text from (
           select revision from corrections where adjusts = $3::uuid and organization_id = $1
           union
           select revision from corrections where organization_id = $1 and revision > $2 and rerate_run is not null
         ) found order by found.revision limit $4`,
  values: [organizationId, revision, chargeId, max],
})

type CallPlaceRow = { indexed: string; revision: string | null }

/**
 * The revisions of a request's calls in a ledger, and the revision up to which the rows contain the ledger (−1 if not at all). If the
 * request has no call, returns one row whose `revision` is null. The request's lines are selected first, because a planner without
 * statistics would read all lines of the organization.
 */
export const placesOfRequest = (
  organizationId: string,
  { requestId, max }: { requestId: string; max: number },
): Query<CallPlaceRow> => ({
  text: `with found as materialized (select ledger, revision, kind from ledger_lines where request_id = $2 limit $3)
         select least(
                  coalesce((select revision from indexed_ledgers where organization_id = $1), -1),
                  coalesce((${lastRevision}), -1))::text as indexed,
                found.revision::text
           from (select 1) one left join found on found.ledger = ledger_key($1) and found.kind = 'call'
          order by found.revision`,
  values: [organizationId, requestId, max],
})

/** The organizations with a call that has this request id. Normally, there is at most one, because request ids are unique. */
export const organizationsOfRequest = (
  requestId: string,
  max: number,
): Query<{ organization_id: string }> => ({
  text: `select distinct organization_id from (select organization_id from ledger_lines where request_id = $1 limit $2) found`,
  values: [requestId, max],
})

/** The revisions at which lots were opened. */
export const placesOfLots = (
  organizationId: string,
  lotIds: readonly string[],
): Query<{ grant_id: string; revision: string }> => ({
  text: `select grant_id, revision::text from account_lots where organization_id = $1 and grant_id = any ($2::uuid[])`,
  values: [organizationId, lotIds],
})

/** The revisions before a given one at which an organization's own prices for SKUs were set, without withdrawn prices. */
export const placesOfOverrides = (
  organizationId: string,
  { skus, before, max }: { skus: readonly string[]; before: number; max: number },
): Query<{ revision: string }> => ({
  text: `select o.revision::text from account_price_overrides o
          where o.organization_id = $1 and o.sku = any ($2) and o.revision < $3 order by o.revision desc limit $4`,
  values: [organizationId, skus, before, max],
})

/** The revisions of calls that repeated the call with this request id. */
export const replaysOf = (
  organizationId: string,
  { repeats, max }: { repeats: string; max: number },
): Query<{ revision: string }> => ({
  text: `select r.revision::text from replays r where r.organization_id = $1 and r.repeats = $2 order by r.revision limit $3`,
  values: [organizationId, repeats, max],
})

/** The balance below which an organization is notified. Null: it is never notified. */
export const thresholdOf = (organizationId: string): Query<{ amount_micro: string | null }> => ({
  text: 'select amount_micro::text from balance_thresholds where organization_id = $1',
  values: [organizationId],
})
