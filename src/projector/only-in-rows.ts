import { hash } from 'node:crypto'
import type pg from 'pg'
import { apiKeys, keysOnlyInRows } from '../../projections/api-keys.ts'
import { ledgerLines, linesOnlyInRows } from '../../projections/ledger-lines.ts'
import { profileCache, profilesOnlyInLog } from '../../projections/profile-cache.ts'
import type { Projection, Query, TableName } from '../../projections/projection.ts'
import { rowsOf } from '../concurrency/query.ts'
import { nextTable } from './tables.ts'

/**
 * A fact that only the live rows contain, because the event log was restored from an older copy or has lost events. A rebuild would lose it.
 * `kind` is `key_revoked`, `key_issued`, `profile_erased`, or the kind of statement lines.
 */
export type OnlyInRows = {
  readonly kind: string
  /** The id of the key or subject. For statement lines, the number of lines that an organization would lose. */
  readonly what: string
  readonly organization_id: string | null
  readonly at: string | null
  readonly amount_micro: string | null
}

/** Returns the facts that are in the live rows, but not in the rebuilt rows. */
export const onlyInRows = async (
  client: pg.ClientBase,
  projections: readonly Projection[],
): Promise<OnlyInRows[]> => {
  const lostFrom = async <Row extends pg.QueryResultRow>(
    projection: Projection,
    query: (live: TableName, next: TableName) => Query<Row>,
  ): Promise<Row[]> => {
    const rebuilt = projections.find(({ name }) => name === projection.name)
    if (rebuilt === undefined) return []
    // The live tables can be those of an older version, to which the views refer.
    return rowsOf(
      client,
      query((view) => view, nextTable(rebuilt)),
    )
  }
  const keys = await lostFrom(apiKeys, keysOnlyInRows)
  const profiles = await lostFrom(profileCache, profilesOnlyInLog)
  const lines = await lostFrom(ledgerLines, linesOnlyInRows)
  const nothing = { organization_id: null, at: null, amount_micro: null }
  return [
    ...keys.map(({ what, key_id, organization_id, at }) => ({
      ...nothing,
      kind: `key_${what}`,
      what: key_id,
      organization_id,
      at: at.toISOString(),
    })),
    ...profiles.map(({ subject_id }) => ({ ...nothing, kind: 'profile_erased', what: subject_id })),
    ...lines.map(({ kind, organization_id, lines: count, amount_micro }) => ({
      ...nothing,
      kind,
      what: `${count} lines`,
      organization_id,
      amount_micro,
    })),
  ]
}

/** A digest of lost facts, regardless of their order. By confirming it, an operator agrees to lose exactly the listed facts. */
export const lossDigest = (lost: readonly OnlyInRows[]): string =>
  hash(
    'sha256',
    lost
      .map(({ kind, what, organization_id, at, amount_micro }) =>
        JSON.stringify([kind, what, organization_id, at, amount_micro]),
      )
      .sort()
      .join('\n'),
  ).slice(0, lossDigestLength)

const lossDigestLength = 16
