import type pg from 'pg'
import { createGathering } from '../concurrency/gathering.ts'
import { preparedRowsOf } from '../concurrency/query.ts'
import type { EpochSealer, Secrets } from '../guard/secrets/secrets.ts'
import type { KeyedRequest } from './key-lookup.ts'
import { sharedStatements } from './unavailable.ts'

/**
 * A claim is a row. While a request is being answered, its claim prevents a second request with the same Idempotency-Key from being
 * processed. The row then stores the answer for a day. Only the ledger shows whether a call was charged.
 */

/** Longer than any call takes. An older claim belongs to a process that has died. */
const claimTtlSeconds = 60

export type StoredAnswer = { readonly status: number; readonly body: string }

export type ClaimRow = {
  /** True if the row was made for the same request and not only for the same key. */
  readonly same: boolean
  readonly stale: boolean
  readonly claimedAt: string
  readonly answered: boolean
  /** Null if the answer was deleted or never stored, or cannot be opened. */
  readonly answer: StoredAnswer | null
  /** The ledger revision of the call that paid for the answer. */
  readonly paidRevision: number | null
}

/** Without a body, the row records only that there was an answer. */
export type ClaimEnd = {
  readonly status: number
  readonly body: string | null
  /** The ledger revision of the call that paid for the answer; null if the call was free. */
  readonly paidRevision: number | null
}

/**
 * Calls that arrive together share the statements that insert and finish claims. Each method throws the errors of pg, or
 * `Unavailable` if too many calls are waiting. A method that takes a claim returns false if another request was first.
 */
export type Claims = {
  /** Returns false if the row already exists. */
  insert(request: KeyedRequest): Promise<boolean>
  read(request: KeyedRequest): Promise<ClaimRow | undefined>
  takeOver(request: KeyedRequest, row: ClaimRow): Promise<boolean>
  /** Takes over a stale claim that another request made with a key that belongs to this request. */
  takeOverFor(request: KeyedRequest, row: ClaimRow): Promise<boolean>
  /** Claims an answered row again, because the call is made again. */
  reopen(request: KeyedRequest, row: ClaimRow): Promise<boolean>
  finish(request: KeyedRequest, end: ClaimEnd): Promise<void>
  release(request: KeyedRequest): Promise<void>
  handBack(request: KeyedRequest): Promise<void>
}

type Row = {
  same: boolean
  stale: boolean
  claimed_at: string
  status: number | null
  answer: string | null
  paid_revision: string | null
}

/** $1 is the organization, $2 the hash of the key. An unchanged `claimed_at` proves that the claim has not changed since it was read. */
const ofKey = 'where organization_id = $1 and key_hash = $2'
const statements = {
  read: `select body_hash = $3 as same, claimed_at < now() - $4 * interval '1 s' as stale, claimed_at::text,
                status, answer, paid_revision
           from idempotent_calls ${ofKey}`,
  takeOver: `update idempotent_calls set claimed_at = now()
             ${ofKey} and claimed_at = $3::timestamptz and status is null`,
  takeOverFor: `update idempotent_calls set body_hash = $4, claimed_at = now()
                ${ofKey} and claimed_at = $3::timestamptz and status is null`,
  reopen: `update idempotent_calls set status = null, answer = null, answered_at = null, claimed_at = now()
           ${ofKey} and claimed_at = $3::timestamptz and status is not null`,
  release: `delete from idempotent_calls ${ofKey} and body_hash = $3 and status is null`,
  handBack: `update idempotent_calls set claimed_at = now() - ($4 + 1) * interval '1 s'
             ${ofKey} and body_hash = $3 and status is null`,
} as const

/** Inserts rows in the order of the index, so that two processes cannot deadlock. */
const insertText = `
  insert into idempotent_calls (organization_id, key_hash, body_hash)
  select n.organization_id, n.key_hash, n.body_hash
    from unnest($1::text[], $2::bytea[], $3::bytea[]) as n (organization_id, key_hash, body_hash)
   order by n.organization_id, n.key_hash
  on conflict do nothing
  returning organization_id, key_hash`

/** If a process was stopped for minutes, its key can belong to another request by now, which must not get this answer. */
const finishText = `
  update idempotent_calls c set status = n.status, answer = n.answer, answered_at = now(),
         paid_revision = coalesce(n.paid_revision, c.paid_revision)
    from unnest($1::text[], $2::bytea[], $3::bytea[], $4::smallint[], $5::text[], $6::bigint[])
         as n (organization_id, key_hash, body_hash, status, answer, paid_revision)
   where c.organization_id = n.organization_id and c.key_hash = n.key_hash and c.body_hash = n.body_hash`

/** `bodyHash`: the request that holds the claim. */
type Inserted = {
  readonly organizationId: string
  readonly keyHash: Buffer
  readonly bodyHash: Buffer
}

type Finished = Inserted & {
  readonly status: number
  readonly sealed: string | null
  readonly paidRevision: number | null
}

/** The result is false if the row already existed, or another claim in this statement made the row. */
const insertAll = async (pool: pg.Pool, claims: readonly Inserted[]): Promise<boolean[]> => {
  const rows = await preparedRowsOf<{ organization_id: string; key_hash: Buffer }>(pool, 'claims-insert', {
    text: insertText,
    values: [
      claims.map(({ organizationId }) => organizationId),
      claims.map(({ keyHash }) => keyHash),
      claims.map(({ bodyHash }) => bodyHash),
    ],
  })
  const inserted = new Set(rows.map((row) => nameOf(row.organization_id, row.key_hash)))
  return claims.map(({ organizationId, keyHash }) => inserted.delete(nameOf(organizationId, keyHash)))
}

const nameOf = (organizationId: string, keyHash: Buffer): string =>
  `${organizationId} ${keyHash.toString('hex')}`

const finishAll = async (pool: pg.Pool, claims: readonly Finished[]): Promise<null[]> => {
  await preparedRowsOf(pool, 'claims-finish', {
    text: finishText,
    values: [
      claims.map(({ organizationId }) => organizationId),
      claims.map(({ keyHash }) => keyHash),
      claims.map(({ bodyHash }) => bodyHash),
      claims.map(({ status }) => status),
      claims.map(({ sealed }) => sealed),
      claims.map(({ paidRevision }) => paidRevision),
    ],
  })
  return claims.map(() => null)
}

export const createClaims = ({
  pool,
  secrets,
  sealer,
}: {
  pool: pg.Pool
  secrets: Pick<Secrets, 'requestHmac'>
  /** Seals answers, because they contain partners' data. */
  sealer: EpochSealer
}): Claims => {
  const inserts = createGathering<Inserted, boolean>({
    ...sharedStatements('claims of Idempotency-Keys'),
    run: (take) => insertAll(pool, take()),
  })
  const finishes = createGathering<Finished, null>({
    ...sharedStatements('answers under Idempotency-Keys'),
    run: (take) => finishAll(pool, take()),
  })
  const keyHashOf = ({ organizationId, key }: KeyedRequest): Buffer =>
    secrets.requestHmac(`key\n${organizationId}\n${key}`)
  const insertedOf = (request: KeyedRequest): Inserted => ({
    organizationId: request.organizationId,
    keyHash: keyHashOf(request),
    bodyHash: request.fingerprint,
  })
  const ask = <Result extends pg.QueryResultRow>(
    statement: keyof typeof statements,
    request: KeyedRequest,
    ...more: readonly unknown[]
  ) => pool.query<Result>(statements[statement], [request.organizationId, keyHashOf(request), ...more])
  const changesOne = async (...asked: Parameters<typeof ask>): Promise<boolean> =>
    (await ask(...asked)).rowCount === 1

  return {
    insert: (request) => inserts.ask(insertedOf(request)),
    read: async (request) => {
      const { rows } = await ask<Row>('read', request, request.fingerprint, claimTtlSeconds)
      return rows[0] === undefined ? undefined : rowOf(rows[0], request, sealer)
    },
    takeOver: (request, { claimedAt }) => changesOne('takeOver', request, claimedAt),
    takeOverFor: (request, { claimedAt }) =>
      changesOne('takeOverFor', request, claimedAt, request.fingerprint),
    reopen: (request, { claimedAt }) => changesOne('reopen', request, claimedAt),
    finish: async (request, { status, body, paidRevision }) => {
      // Without a key that can seal the answer, the answer is not stored, and a repeated call is made again. Readiness reports the missing
      // key.
      const sealed = body === null ? null : await sealer.seal(body, sealContextOf(request)).catch(() => null)
      await finishes.ask({ ...insertedOf(request), status, sealed, paidRevision })
    },
    release: async (request) => void (await ask('release', request, request.fingerprint)),
    handBack: async (request) => void (await ask('handBack', request, request.fingerprint, claimTtlSeconds)),
  }
}

/** A stored answer can be opened only with its own organization and Idempotency-Key. */
const sealContextOf = ({ organizationId, key }: KeyedRequest): string => `${organizationId}\n${key}`

const rowOf = (row: Row, request: KeyedRequest, sealer: EpochSealer): ClaimRow => {
  const { status, answer, paid_revision } = row
  const body = answer === null ? null : sealer.open(answer, sealContextOf(request))
  return {
    same: row.same,
    stale: row.stale,
    claimedAt: row.claimed_at,
    answered: status !== null,
    answer: status === null || body === null ? null : { status, body },
    paidRevision: paid_revision === null ? null : Number(paid_revision),
  }
}
