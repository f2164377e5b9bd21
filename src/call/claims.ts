import type pg from 'pg'
import type { EpochSealer, Secrets } from '../guard/secrets.ts'
import { fingerprintsOfRequest, type KeyedRequest, type PaidPlace } from './attempts.ts'

/**
 * The rows that keep two requests with one Idempotency-Key apart while the first is being answered, and hold its answer for a
 * day. What a row says is a hint: whether a call was charged is for the ledger to say.
 */

/** Longer than any call can take; a claim this old belongs to a process that died. */
const claimTtlSeconds = 60

export type StoredAnswer = { readonly status: number; readonly body: string }

/** A claim as its row has it. */
export type ClaimRow = {
  /** It was claimed for this very request. */
  readonly same: boolean
  readonly stale: boolean
  readonly claimedAt: string
  readonly answered: boolean
  /** Null: forgotten, never kept, or not to be opened. */
  readonly answer: StoredAnswer | null
  /** Where the ledger should hold the call that paid for the answer. */
  readonly paid: PaidPlace | null
}

/** How a claim ends with an answer. Without a body only that there was one is kept. */
export type ClaimEnd = {
  readonly status: number
  readonly body: string | null
  readonly paid: PaidPlace | null
}

/** Each is one statement, and throws what pg throws. Where a claim is taken, false means that another request was first. */
export type Claims = {
  /** False: there is a row already. */
  insert(request: KeyedRequest): Promise<boolean>
  read(request: KeyedRequest): Promise<ClaimRow | undefined>
  /** Takes over a stale claim. */
  takeOver(request: KeyedRequest, row: ClaimRow): Promise<boolean>
  /** Takes over a stale claim that was made for another request, which the key does not belong to. */
  takeOverFor(request: KeyedRequest, row: ClaimRow): Promise<boolean>
  /** Makes an answered claim one that is being answered again. */
  reopen(request: KeyedRequest, row: ClaimRow): Promise<boolean>
  finish(request: KeyedRequest, end: ClaimEnd): Promise<void>
  /** The call left no trace in the ledger: the next request with this key is a first one again. */
  release(request: KeyedRequest): Promise<void>
  /** Lets a claim go and keeps what the key was used for: another request with it is a mismatch. */
  handBack(request: KeyedRequest): Promise<void>
}

type Row = {
  same: boolean
  stale: boolean
  claimed_at: string
  status: number | null
  answer: string | null
  paid_attempt: number | null
  paid_revision: string | null
}

/**
 * Each is about an organization's key ($1, and $2: its hash under each SECRET_KEY of the ring, the one in use first), and the
 * claim as it was read. A row keeps the hash it was made with.
 */
const ofKey = 'where organization_id = $1 and key_hash = any ($2::bytea[])'
const statements = {
  insert: `insert into idempotent_calls (organization_id, key_hash, body_hash)
           select $1, ($2::bytea[])[1], $3
            where cardinality($2::bytea[]) = 1 or not exists (select 1 from idempotent_calls ${ofKey})
           on conflict do nothing`,
  read: `select body_hash = any ($3::bytea[]) as same, claimed_at < now() - $4 * interval '1 s' as stale, claimed_at::text,
                status, answer, paid_attempt, paid_revision
           from idempotent_calls ${ofKey} order by status is null, claimed_at limit 1`,
  takeOver: `update idempotent_calls set claimed_at = now()
             ${ofKey} and claimed_at = $3::timestamptz and status is null`,
  takeOverFor: `update idempotent_calls set body_hash = $4, claimed_at = now()
                ${ofKey} and claimed_at = $3::timestamptz and status is null`,
  reopen: `update idempotent_calls set status = null, answer = null, answered_at = null, claimed_at = now()
           ${ofKey} and claimed_at = $3::timestamptz and status is not null`,
  finish: `update idempotent_calls set status = $3, answer = $4, answered_at = now(),
                  paid_attempt = coalesce($5, paid_attempt), paid_revision = coalesce($6, paid_revision)
           ${ofKey}`,
  release: `delete from idempotent_calls ${ofKey} and status is null`,
  handBack: `update idempotent_calls set claimed_at = now() - ($3 + 1) * interval '1 s'
             ${ofKey} and status is null`,
} as const

export const createClaims = ({
  pool,
  secrets,
  sealer,
}: {
  pool: pg.Pool
  secrets: Pick<Secrets, 'requestHmacs'>
  /** Answers repeat what partners sent and were told. */
  sealer: EpochSealer
}): Claims => {
  const ask = <Result extends pg.QueryResultRow>(
    statement: keyof typeof statements,
    { organizationId, key }: KeyedRequest,
    ...more: readonly unknown[]
  ) => {
    const keyHashes = secrets.requestHmacs(`key\n${organizationId}\n${key}`)
    return pool.query<Result>(statements[statement], [organizationId, keyHashes, ...more])
  }
  const changesOne = async (...asked: Parameters<typeof ask>): Promise<boolean> =>
    (await ask(...asked)).rowCount === 1

  return {
    insert: (request) => changesOne('insert', request, request.fingerprint),
    read: async (request) => {
      const { rows } = await ask<Row>('read', request, fingerprintsOfRequest(request), claimTtlSeconds)
      return rows[0] === undefined ? undefined : rowOf(rows[0], request, sealer)
    },
    takeOver: (request, { claimedAt }) => changesOne('takeOver', request, claimedAt),
    takeOverFor: (request, { claimedAt }) =>
      changesOne('takeOverFor', request, claimedAt, request.fingerprint),
    reopen: (request, { claimedAt }) => changesOne('reopen', request, claimedAt),
    finish: async (request, { status, body, paid }) => {
      // With no key to seal it under it is not kept, and a repeated call is made again, as after a day. Readiness tells.
      const sealed = body === null ? null : await sealer.seal(body, sealContextOf(request)).catch(() => null)
      await ask('finish', request, status, sealed, paid?.attempt ?? null, paid?.revision ?? null)
    },
    release: async (request) => void (await ask('release', request)),
    handBack: async (request) => void (await ask('handBack', request, claimTtlSeconds)),
  }
}

/** A kept answer opens for the organization and the key it was given under, and for no other. */
const sealContextOf = ({ organizationId, key }: KeyedRequest): string => `${organizationId}\n${key}`

const rowOf = (row: Row, request: KeyedRequest, sealer: EpochSealer): ClaimRow => {
  const { status, answer, paid_attempt, paid_revision } = row
  const body = answer === null ? null : sealer.open(answer, sealContextOf(request))
  return {
    same: row.same,
    stale: row.stale,
    claimedAt: row.claimed_at,
    answered: status !== null,
    answer: status === null || body === null ? null : { status, body },
    paid:
      paid_attempt === null || paid_revision === null
        ? null
        : { attempt: paid_attempt, revision: Number(paid_revision) },
  }
}
