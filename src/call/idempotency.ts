import type pg from 'pg'
import type { EventLog } from '../event-log/port.ts'
import type { EpochSealer, Secrets } from '../guard/secrets.ts'
import type { KeyedEvents } from '../ledger/keyed-events.ts'
import { createAttempts, type KeyedRequest, type LedgerFinding } from './attempts.ts'
import { unavailableWhenAway } from './unavailable.ts'
import { unavailableWhenLate } from './waiting.ts'

/**
 * Idempotency-Key (decision 15): the same key and request again gets the first answer and is charged once, ever.
 *
 * A claim row keeps two requests with one key apart while the first is being answered, and holds the first answer for
 * a day. That the charge is never taken twice does not rest on the row but on the ledger: the call's event id derives
 * from the key, and before a call is made again the ledger is asked whether it holds that event.
 */

/** Longer than any call can take; a claim this old belongs to a process that died. */
const claimTtlSeconds = 60
const keyCharactersMax = 255
/** What of a caller's patience a claim may take, and what the end of one; each is some milliseconds where the database works. */
export const claimWaitMs = 3_000
const letGoWaitMs = 1_000

export type StoredAnswer = { readonly status: number; readonly body: string }

export type IdempotencyClaim = KeyedRequest

/** `first`: go ahead, then `finish` or `release`. */
type Claim = LedgerFinding | { readonly kind: 'replay'; readonly answer: StoredAnswer }

/** Everything settles within a few seconds; what is late is done unheard, and throws `Unavailable`. */
export type Idempotency = {
  claim(claim: IdempotencyClaim): Promise<Claim>
  /** What the ledger holds now, for whoever has the claim and found there that another process wrote the call meanwhile. */
  lookAgain(claim: IdempotencyClaim): Promise<LedgerFinding>
  /**
   * Keeps the first answer. Without a body only that there was one: the call is made again, charging nothing. `paidRevision`:
   * where its charged call is in the ledger.
   */
  finish(
    claim: IdempotencyClaim,
    answer: { readonly status: number; readonly body: string | null; readonly paidRevision: number | null },
  ): Promise<void>
  /** The call left no trace in the ledger: the next request with this key is a first one again. */
  release(claim: IdempotencyClaim): Promise<void>
  /** Lets a claim go and keeps what the key was used for: another request with it is a mismatch. */
  handBack(claim: IdempotencyClaim): Promise<void>
}

/** The header's key: bare, or quoted as a structured-field string. Null when it is not 1 to 255 visible characters. */
export const parseIdempotencyKey = (header: string): string | null => {
  const text = /^"(.*)"$/.exec(header)?.[1] ?? header
  return text.length <= keyCharactersMax && /^[\x21-\x7e]+$/.test(text) ? text : null
}

/**
 * What makes two requests under one key the same: route and exact body. Of that key of that organization alone: equal
 * requests under other keys have nothing in common. Neither holds a line break.
 */
export const fingerprintOf = (
  secrets: Pick<Secrets, 'requestHmac'>,
  { organizationId, key }: Pick<IdempotencyClaim, 'organizationId' | 'key'>,
  { route, body }: { readonly route: string; readonly body: string },
): Buffer => secrets.requestHmac(`request\n${organizationId}\n${key}\n${route}\n${body}`)

export const createIdempotency = ({
  pool,
  eventLog,
  keyedEvents,
  secrets,
  sealer,
}: {
  pool: pg.Pool
  eventLog: EventLog
  keyedEvents: KeyedEvents
  secrets: Pick<Secrets, 'requestHmac'>
  /** Answers repeat what partners sent and were told. */
  sealer: EpochSealer
}): Idempotency => {
  const attempts = createAttempts({ pool, eventLog, keyedEvents })
  const keyHash = ({ organizationId, key }: Pick<IdempotencyClaim, 'organizationId' | 'key'>): Buffer =>
    secrets.requestHmac(`key\n${organizationId}\n${key}`)
  /** A kept answer opens for the organization and the key it was given under, and for no other. */
  const sealContext = ({ organizationId, key }: IdempotencyClaim): string => `${organizationId}\n${key}`

  const release: Idempotency['release'] = async (claim) => {
    await pool.query(
      'delete from idempotent_calls where organization_id = $1 and key_hash = $2 and status is null',
      [claim.organizationId, keyHash(claim)],
    )
  }

  const handBack: Idempotency['handBack'] = async (claim) => {
    await pool.query(
      `update idempotent_calls set claimed_at = now() - ($3 + 1) * interval '1 s'
        where organization_id = $1 and key_hash = $2 and status is null`,
      [claim.organizationId, keyHash(claim), claimTtlSeconds],
    )
  }

  /** For whoever holds the claim: it is let go where the ledger cannot be looked into. */
  const lookUnderClaim = async (
    claim: IdempotencyClaim,
    letGo: typeof release,
    paidRevision: number | null = null,
  ): Promise<LedgerFinding> => {
    try {
      const found = await attempts.find(claim, paidRevision)
      // The claim says what the key was used for, and that is not this.
      if (found.kind === 'mismatch') await release(claim)
      return found
    } catch (error) {
      await letGo(claim).catch(() => undefined)
      throw error
    }
  }

  /**
   * Whoever claimed the key for another request died, perhaps before it was told that the key is not its own: the ledger knows
   * whose a key is that was paid for.
   */
  const rightClaim = async (
    claim: IdempotencyClaim,
    { claimed_at }: { claimed_at: string },
  ): Promise<LedgerFinding> => {
    const found = await attempts.find(claim, null)
    if (found.kind !== 'charged') return { kind: 'mismatch' }
    const righted = await pool.query(
      `update idempotent_calls set body_hash = $3, claimed_at = now()
        where organization_id = $1 and key_hash = $2 and claimed_at = $4::timestamptz and status is null`,
      [claim.organizationId, keyHash(claim), claim.fingerprint, claimed_at],
    )
    return righted.rowCount === 1 ? found : { kind: 'in_flight' }
  }

  const claimOne = async (claim: IdempotencyClaim): Promise<Claim> => {
    const { organizationId, fingerprint } = claim
    const inserted = await pool.query(
      `insert into idempotent_calls (organization_id, key_hash, body_hash) values ($1, $2, $3) on conflict do nothing`,
      [organizationId, keyHash(claim), fingerprint],
    )
    if (inserted.rowCount === 1) return lookUnderClaim(claim, release)
    const { rows } = await pool.query<{
      same: boolean
      stale: boolean
      claimed_at: string
      status: number | null
      answer: string | null
      paid_revision: string | null
    }>(
      `select body_hash = $3 as same, claimed_at < now() - $4 * interval '1 s' as stale, claimed_at::text,
                status, answer, paid_revision
           from idempotent_calls where organization_id = $1 and key_hash = $2`,
      [organizationId, keyHash(claim), fingerprint, claimTtlSeconds],
    )
    const row = rows[0]
    // Released between the two statements: the caller may try again.
    if (row === undefined) return { kind: 'in_flight' }
    const paidRevision = row.paid_revision === null ? null : Number(row.paid_revision)
    if (!row.same) return row.status === null && row.stale ? rightClaim(claim, row) : { kind: 'mismatch' }
    if (row.status !== null) {
      // Forgotten, never kept, or not to be opened: what the ledger says still holds.
      const body = row.answer === null ? null : sealer.open(row.answer, sealContext(claim))
      if (body !== null) return { kind: 'replay', answer: { status: row.status, body } }
      const looked = await attempts.find(claim, paidRevision)
      if (looked.kind !== 'first') return looked
      // Made again it is a first call: one at a time.
      const again = await pool.query(
        `update idempotent_calls set status = null, answer = null, answered_at = null, claimed_at = now()
          where organization_id = $1 and key_hash = $2 and claimed_at = $3::timestamptz and status is not null`,
        [organizationId, keyHash(claim), row.claimed_at],
      )
      return again.rowCount === 1 ? looked : { kind: 'in_flight' }
    }
    if (!row.stale) return { kind: 'in_flight' }
    const taken = await pool.query(
      `update idempotent_calls set claimed_at = now()
          where organization_id = $1 and key_hash = $2 and claimed_at = $3::timestamptz and status is null`,
      [organizationId, keyHash(claim), row.claimed_at],
    )
    if (taken.rowCount !== 1) return { kind: 'in_flight' }
    return lookUnderClaim(claim, handBack, paidRevision)
  }

  const finish: Idempotency['finish'] = async (claim, { status, body, paidRevision }) => {
    // With no key to seal it under it is not kept, and a repeated call is made again, as after a day. Readiness tells.
    const sealed = body === null ? null : await sealer.seal(body, sealContext(claim)).catch(() => null)
    await pool.query(
      `update idempotent_calls set status = $3, answer = $4, answered_at = now(), paid_revision = coalesce($5, paid_revision)
        where organization_id = $1 and key_hash = $2`,
      [claim.organizationId, keyHash(claim), status, sealed, paidRevision],
    )
  }

  const letGoIsLate = { waitMs: letGoWaitMs, what: 'a claim is kept or let go' }
  return {
    claim: async (claim) => {
      const claiming = claimOne(claim).catch(unavailableWhenAway)
      try {
        return await unavailableWhenLate(claiming, { waitMs: claimWaitMs, what: 'a claim' })
      } catch (error) {
        // Nobody is there any more to make the call: what is claimed after all is not held.
        claiming
          .then(({ kind }) => (kind === 'first' || kind === 'charged' ? handBack(claim) : undefined))
          .catch(() => undefined)
        throw error
      }
    },
    lookAgain: (claim) =>
      unavailableWhenLate(lookUnderClaim(claim, handBack).catch(unavailableWhenAway), {
        waitMs: claimWaitMs,
        what: 'a key in the ledger',
      }),
    finish: (claim, answer) => unavailableWhenLate(finish(claim, answer), letGoIsLate),
    release: (claim) => unavailableWhenLate(release(claim), letGoIsLate),
    handBack: (claim) => unavailableWhenLate(handBack(claim), letGoIsLate),
  }
}
