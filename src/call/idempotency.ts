import type pg from 'pg'
import { type IdempotentCallRow, idempotentCalls } from '../../projections/ledger-lines.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { type EventLog, StreamMissing } from '../event-log/port.ts'
import { type DecodedEvent, decodeEvent } from '../event-log/stored-event.ts'
import { ledgerStream } from '../events/streams.ts'
import type { Secrets } from '../guard/secrets.ts'
import { settlementKeyOf } from '../ledger/abandoned.ts'
import type { PaidCall } from './form.ts'
import { unavailableWhenAway } from './unavailable.ts'

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

/** How often a call may come to nothing under one key before the caller has to send another. */
const attemptsMax = 16

/** What became of one attempt, by the id of its first event. `delivered`: its answer was, after its charge was found. */
type Attempt = {
  readonly revision: number
  unpaid: boolean
  chargeId: string | null
  reversed: boolean
  delivered: boolean
}

const noteAttempt = (
  found: Map<string, Attempt>,
  { ids, settlements }: { ids: readonly string[]; settlements: ReadonlyMap<string, string> },
  event: DecodedEvent,
): void => {
  // Another adjustment corrects a charge, and does not give it back.
  const settled = found.get(settlements.get(event.recorded.id) ?? '')
  if (settled !== undefined) {
    if (event.type === 'KeyUsed') settled.delivered = true
    if (event.type === 'CreditAdjusted') settled.reversed = true
  }
  if (event.type === 'KeyUsed' && ids.includes(event.recorded.id))
    found.set(event.recorded.id, {
      revision: event.recorded.revision,
      unpaid: event.data.code === 'CREDIT_001',
      chargeId: null,
      reversed: false,
      delivered: false,
    })
  if (event.type === 'CreditCharged') {
    const attempt = found.get(event.metadata.causation_id ?? '')
    if (attempt !== undefined) attempt.chargeId = event.data.charge_id
  }
}

export type StoredAnswer = { readonly status: number; readonly body: string }

export type Claim =
  /** Never seen: go ahead, then `finish` or `release`. */
  | { readonly kind: 'first'; readonly attempt: number; readonly absentUpTo: number }
  /**
   * Its charge stands in the ledger, its answer is gone: answer again, charge nothing. `settle`: whoever refused the
   * call may be giving the charge back, and the ledger is known not to hold that up to here; null where there is no
   * charge, or its answer was delivered once already.
   */
  | {
      readonly kind: 'charged'
      readonly eventId: string
      /** What the call established then. */
      readonly call: PaidCall
      readonly settle: { readonly absentUpTo: number } | null
    }
  | { readonly kind: 'replay'; readonly answer: StoredAnswer }
  | { readonly kind: 'in_flight' }
  | { readonly kind: 'mismatch' }

/**
 * What the ledger derives event ids from. In a namespace of its own: a partner may send anything as a key, also a
 * request id or the name of a command of ours. A call that cost nothing, or whose charge was given back, may be made
 * again under the same key: as another attempt, with ids of its own.
 */
export const commandKeyOf = (idempotencyKey: string, attempt: number): string =>
  // The attempt stands before the key, which may hold anything.
  attempt === 0 ? `idempotency/${idempotencyKey}` : `idempotency-${attempt}/${idempotencyKey}`

export type IdempotencyClaim = {
  readonly organizationId: string
  readonly key: string
  readonly fingerprint: Buffer
}

export type Idempotency = {
  claim(claim: IdempotencyClaim): Promise<Claim>
  /** What the ledger holds now, for whoever has the claim and found there that another process wrote the call meanwhile. */
  lookAgain(claim: IdempotencyClaim): Promise<Claim>
  /** Keeps the first answer. Without a body only that there was one: the call is made again, charging nothing. */
  finish(
    claim: IdempotencyClaim,
    answer: { readonly status: number; readonly body: string | null },
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
  secrets,
}: {
  pool: pg.Pool
  eventLog: EventLog
  secrets: Pick<Secrets, 'requestHmac' | 'sealer'>
}): Idempotency => {
  // Answers repeat what partners sent and were told.
  const sealer = secrets.sealer('idempotent-answer')
  const keyHash = ({ organizationId, key }: Pick<IdempotencyClaim, 'organizationId' | 'key'>): Buffer =>
    secrets.requestHmac(`key\n${organizationId}\n${key}`)
  /** A kept answer opens for the organization and the key it was given under, and for no other. */
  const sealContext = ({ organizationId, key }: IdempotencyClaim): string => `${organizationId}\n${key}`

  const paidCall = async (organizationId: string, revision: number): Promise<PaidCall> => {
    const [recorded] = await eventLog.read(ledgerStream(organizationId), { from: revision, max: 1 })
    const event = recorded === undefined ? undefined : decodeEvent(recorded)
    if (event?.type !== 'KeyUsed') throw new Error(`there is no call at revision ${revision}`)
    return { facts: event.data.facts, atMs: Date.parse(event.metadata.effective_at) }
  }

  /**
   * What the ledger holds under the key: a call that was paid or free is `charged`; otherwise which attempt comes next,
   * and up to which revision the ledger is known not to hold it.
   */
  const lookInLedger = async (organizationId: string, key: string): Promise<Claim> => {
    const ids = Array.from({ length: attemptsMax }, (_, n) =>
      eventIdOf(organizationId, commandKeyOf(key, n), 0),
    )
    const settlements = new Map(ids.map((id) => [eventIdOf(organizationId, settlementKeyOf(id), 0), id]))
    const found = new Map<string, Attempt>()
    const projected = idempotentCalls(organizationId, [...ids, ...settlements.keys()])
    const { rows } = await pool.query<IdempotentCallRow>(projected.text, [...projected.values])
    let absentUpTo = Number(rows[0]?.last_revision ?? -1)
    for (const row of rows)
      if (row.event_id !== null)
        found.set(row.event_id, {
          revision: Number(row.revision),
          unpaid: row.code === 'CREDIT_001',
          chargeId: row.charge_id,
          reversed: row.reversed,
          delivered: rows.some(({ event_id }) => settlements.get(event_id ?? '') === row.event_id),
        })
    // The projection may be behind; what it does not have yet is read from the ledger itself.
    for (;;) {
      const page = await eventLog
        .read(ledgerStream(organizationId), { from: absentUpTo + 1, max: scanPageMax })
        .catch((error: unknown) => {
          if (error instanceof StreamMissing) return []
          throw error
        })
      for (const recorded of page) noteAttempt(found, { ids, settlements }, decodeEvent(recorded))
      absentUpTo += page.length
      if (page.length < scanPageMax) break
    }
    for (const [attempt, id] of ids.entries()) {
      const made = found.get(id)
      if (made === undefined) return { kind: 'first', attempt, absentUpTo }
      // It cost nothing, or no longer does: made again it may.
      if (made.unpaid || made.reversed || made.chargeId === null) continue
      return {
        kind: 'charged',
        eventId: id,
        call: await paidCall(organizationId, made.revision),
        settle: made.delivered ? null : { absentUpTo },
      }
    }
    return { kind: 'in_flight' }
  }

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
  const lookUnderClaim = (claim: IdempotencyClaim, letGo: typeof release): Promise<Claim> =>
    lookInLedger(claim.organizationId, claim.key).catch(async (error: unknown) => {
      await letGo(claim).catch(() => undefined)
      throw error
    })

  const claimOne = async (claim: IdempotencyClaim): Promise<Claim> => {
    const { organizationId, key, fingerprint } = claim
    const inserted = await pool.query(
      `insert into idempotent_calls (organization_id, key_hash, body_hash) values ($1, $2, $3) on conflict do nothing`,
      [organizationId, keyHash(claim), fingerprint],
    )
    if (inserted.rowCount === 1) return lookUnderClaim(claim, release)
    const { rows } = await pool.query<{
      same: boolean
      stale: boolean
      claimed_at: Date
      status: number | null
      answer: string | null
    }>(
      `select body_hash = $3 as same, claimed_at < now() - $4 * interval '1 s' as stale, claimed_at::text,
                status, answer
           from idempotent_calls where organization_id = $1 and key_hash = $2`,
      [organizationId, keyHash(claim), fingerprint, claimTtlSeconds],
    )
    const row = rows[0]
    // Released between the two statements: the caller may try again.
    if (row === undefined) return { kind: 'in_flight' }
    if (!row.same) return { kind: 'mismatch' }
    if (row.status !== null) {
      // Forgotten, never kept, or not to be opened: what the ledger says still holds.
      const body = row.answer === null ? null : sealer.open(row.answer, sealContext(claim))
      if (body !== null) return { kind: 'replay', answer: { status: row.status, body } }
      const looked = await lookInLedger(organizationId, key)
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
    return lookUnderClaim(claim, handBack)
  }

  return {
    claim: (claim) => claimOne(claim).catch(unavailableWhenAway),
    lookAgain: (claim) => lookInLedger(claim.organizationId, claim.key).catch(unavailableWhenAway),
    finish: async (claim, { status, body }) => {
      const sealed = body === null ? null : sealer.seal(body, sealContext(claim))
      await pool.query(
        `update idempotent_calls set status = $3, answer = $4, answered_at = now()
          where organization_id = $1 and key_hash = $2`,
        [claim.organizationId, keyHash(claim), status, sealed],
      )
    },
    release,
    handBack,
  }
}
