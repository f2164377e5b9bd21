import { hash } from 'node:crypto'
import type pg from 'pg'
import { idempotentCall } from '../../projections/ledger-lines.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { type EventLog, StreamMissing } from '../event-log/port.ts'
import { ledgerStream } from '../events/streams.ts'

/**
 * Idempotency-Key (decision 15): the same key and request again gets the first answer and is charged once, ever.
 *
 * A claim row keeps two requests with one key apart while the first is being answered, and holds the first answer for
 * a day. That the charge is never taken twice does not rest on the row but on the ledger: the call's event id derives
 * from the key, and before a call is made again the ledger is asked whether it holds that event.
 */

/** Longer than any call can take; a claim this old belongs to a process that died. */
const claimTtlSeconds = 60
const scanPageMax = 1_000
const keyCharactersMax = 255

export type StoredAnswer = {
  readonly status: number
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

export type Claim =
  /** Never seen: go ahead, then `finish` or `release`. */
  | { readonly kind: 'first'; readonly absentUpTo: number }
  /** Its charge stands in the ledger, its answer is gone: answer again, charge nothing. */
  | { readonly kind: 'charged' }
  | { readonly kind: 'replay'; readonly answer: StoredAnswer }
  | { readonly kind: 'in_flight' }
  | { readonly kind: 'mismatch' }

/**
 * What the ledger derives event ids from. In a namespace of its own: a partner may send anything as a key, also a
 * request id or the name of a command of ours.
 */
export const commandKeyOf = (idempotencyKey: string): string => `idempotency/${idempotencyKey}`

export type IdempotencyClaim = {
  readonly organizationId: string
  readonly key: string
  readonly fingerprint: Buffer
}

export type Idempotency = {
  claim(claim: IdempotencyClaim): Promise<Claim>
  finish(claim: IdempotencyClaim, answer: StoredAnswer): Promise<void>
  /** The call left no trace in the ledger: the next request with this key is a first one again. */
  release(claim: IdempotencyClaim): Promise<void>
}

/** The header's key: bare, or quoted as a structured-field string. Null when it is not 1 to 255 visible characters. */
export const parseIdempotencyKey = (header: string): string | null => {
  const text = /^"(.*)"$/.exec(header)?.[1] ?? header
  return text.length <= keyCharactersMax && /^[\x21-\x7e]+$/.test(text) ? text : null
}

/** What makes two requests the same: route and exact body. */
export const fingerprintOf = (route: string, body: string): Buffer =>
  hash('sha256', `${route}\n${body}`, 'buffer')

export const createIdempotency = ({ pool, eventLog }: { pool: pg.Pool; eventLog: EventLog }): Idempotency => {
  const keyHash = (key: string): Buffer => hash('sha256', key, 'buffer')

  /** Whether the ledger holds the call; if not, up to which revision it is known not to. */
  const lookInLedger = async (organizationId: string, key: string, afterRevision: number): Promise<Claim> => {
    const eventId = eventIdOf(organizationId, commandKeyOf(key), 0)
    const projected = idempotentCall(organizationId, eventId)
    if ((await pool.query(projected.text, [...projected.values])).rows.length > 0) return { kind: 'charged' }
    // The projection may be behind; what happened since the claim is read from the ledger itself.
    let absentUpTo = afterRevision
    for (;;) {
      const from = absentUpTo + 1
      const page = await eventLog
        .read(ledgerStream(organizationId), { from, max: scanPageMax })
        .catch((error: unknown) => {
          if (error instanceof StreamMissing) return []
          throw error
        })
      if (page.some(({ id }) => id === eventId)) return { kind: 'charged' }
      absentUpTo += page.length
      if (page.length < scanPageMax) return { kind: 'first', absentUpTo }
    }
  }

  return {
    claim: async ({ organizationId, key, fingerprint }) => {
      const inserted = await pool.query<{ ledger_revision: string }>(
        `insert into idempotent_calls (organization_id, key_hash, body_hash, ledger_revision)
         values ($1, $2, $3, coalesce((select revision from accounts where organization_id = $1), -1))
         on conflict do nothing returning ledger_revision`,
        [organizationId, keyHash(key), fingerprint],
      )
      const fresh = inserted.rows[0]
      if (fresh !== undefined) return lookInLedger(organizationId, key, Number(fresh.ledger_revision))
      const { rows } = await pool.query<{
        same: boolean
        stale: boolean
        claimed_at: Date
        ledger_revision: string
        status: number | null
        answer: string | null
        headers: Record<string, string> | null
      }>(
        `select body_hash = $3 as same, claimed_at < now() - $4 * interval '1 s' as stale, claimed_at::text, ledger_revision,
                status, answer, headers
           from idempotent_calls where organization_id = $1 and key_hash = $2`,
        [organizationId, keyHash(key), fingerprint, claimTtlSeconds],
      )
      const row = rows[0]
      // Released between the two statements: the caller may try again.
      if (row === undefined) return { kind: 'in_flight' }
      if (!row.same) return { kind: 'mismatch' }
      if (row.status !== null)
        return row.answer === null
          ? { kind: 'charged' }
          : { kind: 'replay', answer: { status: row.status, body: row.answer, headers: row.headers ?? {} } }
      if (!row.stale) return { kind: 'in_flight' }
      const taken = await pool.query(
        `update idempotent_calls set claimed_at = now()
          where organization_id = $1 and key_hash = $2 and claimed_at = $3::timestamptz and status is null`,
        [organizationId, keyHash(key), row.claimed_at],
      )
      if (taken.rowCount !== 1) return { kind: 'in_flight' }
      return lookInLedger(organizationId, key, Number(row.ledger_revision))
    },
    finish: async ({ organizationId, key }, { status, body, headers }) => {
      await pool.query(
        `update idempotent_calls set status = $3, answer = $4, headers = $5, answered_at = now()
          where organization_id = $1 and key_hash = $2`,
        [organizationId, keyHash(key), status, body, JSON.stringify(headers)],
      )
    },
    release: async ({ organizationId, key }) => {
      await pool.query(
        'delete from idempotent_calls where organization_id = $1 and key_hash = $2 and status is null',
        [organizationId, keyHash(key)],
      )
    },
  }
}
