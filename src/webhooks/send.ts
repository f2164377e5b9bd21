import type pg from 'pg'
import type { Outside } from '../egress/outside.ts'
import type { PostAnswer } from '../egress/post.ts'
import type { Sealer } from '../guard/secrets/secrets.ts'
import { type Message, signedHeaders } from './signature.ts'

/**
 * Sends a webhook's messages in the order in which they became due, in one process at a time. If a process crashes after it has sent a
 * message but before it has recorded that, the message is sent again with the same id.
 */

export type Sending = {
  readonly pool: pg.Pool
  readonly sealer: Sealer
  readonly outside: Pick<Outside, 'post' | 'postOwn'>
  readonly clock: { now(): number; monotonic(): number }
  /** Returns a random number from 0 to 1. */
  readonly chance: () => number
  readonly logger: { warn(fields: object, message: string): void }
  readonly observe?: (outcome: AttemptOutcome) => void
  /** Aborts when the process shuts down. Attempts in progress are not recorded, so their messages are sent again. */
  readonly signal?: AbortSignal
}

export const attemptOutcomes = ['delivered', 'failed', 'dead', 'disabled'] as const
type AttemptOutcome = (typeof attemptOutcomes)[number]

/** The purpose of the key that seals webhook secrets. The sealing context is the webhook's id. */
export const webhookSealPurpose = 'webhook-secret'

/** The time limit for one attempt. Receivers should accept a message quickly and process it later. */
const deadlineMs = 10_000
/** After this many messages, the round ends so that other webhooks get their turn. */
const roundMessagesMax = 50
const roundMsMax = 20_000
/** Longer than any round, so a claim expires only if its process crashed or was suspended. Measured by the database's clock. */
const busyMs = 60_000

/** A webhook's URL and the secrets that sign its messages. After a rotation, the previous secret is used until `former_until`. */
export type Receiver = {
  readonly webhook_id: string
  /** Null: the webhook belongs to the operator. Only such webhooks can use the addresses in `EGRESS_ALLOW`. */
  readonly organization_id: string | null
  readonly url: string
  readonly sealed_secret: string
  readonly former_sealed_secret: string | null
  readonly former_until: Date | null
}

/** `claimed_until` is the end of the claim, as text because it has microseconds. No other claim has the same end. */
type Claimed = { readonly failing_since: Date | null; readonly claimed_until: string }

export const resultText = (answer: PostAnswer): string =>
  answer.kind === 'answered' ? String(answer.status) : `${answer.kind} ${answer.detail}`

/** Signs a message and sends it. If a secret cannot be opened, the attempt fails. */
export const sendOnce = async (
  { sealer, outside, signal }: Pick<Sending, 'sealer' | 'outside' | 'signal'>,
  { webhook_id: id, organization_id, url, sealed_secret, former_sealed_secret, former_until }: Receiver,
  message: Message,
): Promise<PostAnswer> => {
  const secret = sealer.open(sealed_secret, id)
  if (secret === null) return { kind: 'refused', detail: 'secret' }
  const counts = former_sealed_secret !== null && (former_until?.getTime() ?? 0) > message.atMs
  const former = counts ? sealer.open(former_sealed_secret, id) : null
  const post = organization_id === null ? outside.postOwn : outside.post
  return post({
    url,
    headers: {
      'content-type': 'application/json',
      'user-agent': 'enrichment-ledger-webhooks',
      ...signedHeaders(former === null ? secret : [secret, former], message),
    },
    body: message.body,
    deadlineMs,
    signal,
  })
}

/**
 * `sent`: the number of attempts. `more`: the round reached a limit, so messages can be left. `slow`: the round reached its time limit, or its last
 * attempt failed.
 */
type Round = { readonly sent: number; readonly more: { readonly slow: boolean } | null }

/** Sends a webhook's due messages, up to the limits of a round. Does nothing if another process is sending to this webhook. */
export const sendRound = async (sending: Sending, webhookId: string): Promise<Round> => {
  const { pool, clock } = sending
  const startedMs = clock.monotonic()
  const isLate = (): boolean => clock.monotonic() - startedMs >= roundMsMax
  const claimed = await claim(pool, webhookId)
  if (claimed === null) return { sent: 0, more: null }
  let failingSinceMs = claimed.failing_since?.getTime() ?? null
  let sent = 0
  try {
    while (sent < roundMessagesMax && !isLate()) {
      const due = await firstDue(pool, webhookId, clock.now())
      if (due === null) return { sent, more: null }
      const message = { id: due.delivery_id, atMs: clock.now(), body: due.payload }
      const answer = await sendOnce(sending, due, message)
      if (sending.signal?.aborted === true && answer.kind !== 'answered') return { sent, more: null }
      sent += 1
      const nowMs = clock.now()
      const status = answer.kind === 'answered' ? answer.status : null
      failingSinceMs ??= nowMs
      const attempts = due.attempts + 1
      const verdict = verdictOf({ status, attempts, failingSinceMs, nowMs, chance: sending.chance() })
      const attempt = { ...due, webhookId, claimed, verdict, nowMs, result: resultText(answer) }
      if (!(await writeDown(pool, attempt))) return { sent, more: null }
      tell(sending, webhookId, verdict)
      if (verdict.kind === 'delivered') failingSinceMs = null
      // A receiver that did not answer will probably not answer the next message either.
      if (status === null || verdict.kind === 'disable' || sending.signal?.aborted === true)
        return { sent, more: null }
    }
    return { sent, more: { slow: isLate() || failingSinceMs !== null } }
  } finally {
    // Another process may have claimed the webhook if this process was suspended for longer than `busyMs`.
    await pool.query(
      'update webhook_endpoints set busy_until = null where webhook_id = $1 and busy_until = $2',
      [webhookId, claimed.claimed_until],
    )
  }
}

const tell = ({ logger, observe }: Sending, webhookId: string, verdict: Verdict): void => {
  const outcomes = { delivered: 'delivered', again: 'failed', dead: 'dead', disable: 'disabled' } as const
  observe?.(outcomes[verdict.kind])
  if (verdict.kind === 'disable')
    logger.warn(
      { webhook: webhookId, reason: verdict.reason },
      'webhooks: a webhook was disabled; when its receiver works again, enable it with "webhook test"',
    )
}

const claim = async (pool: pg.Pool, webhookId: string): Promise<Claimed | null> => {
  const { rows } = await pool.query<Claimed>(
    `update webhook_endpoints set busy_until = now() + $2 * interval '1 ms'
      where webhook_id = $1 and disabled_at is null and paused_at is null and (busy_until is null or busy_until < now())
     returning failing_since, busy_until::text as claimed_until`,
    [webhookId, busyMs],
  )
  return rows[0] ?? null
}

/** A message with its webhook's current data, because the secret can be rotated during a round. */
type Due = Receiver & {
  readonly delivery_id: string
  readonly payload: string
  readonly attempts: number
}

const firstDue = async (pool: pg.Pool, webhookId: string, nowMs: number): Promise<Due | null> => {
  const { rows } = await pool.query<Due>(
    `select d.delivery_id, d.payload, d.attempts,
            e.webhook_id, e.organization_id, e.url, e.sealed_secret, e.former_sealed_secret, e.former_until
       from webhook_deliveries d join webhook_endpoints e using (webhook_id)
      where d.webhook_id = $1 and d.state = 'pending' and d.next_attempt_at <= $2 and e.paused_at is null
      order by d.next_attempt_at, d.delivery_id limit 1`,
    [webhookId, new Date(nowMs)],
  )
  return rows[0] ?? null
}

const stateAfter = { delivered: 'delivered', again: 'pending', dead: 'dead', disable: 'dead' } as const

type Attempt = Pick<Due, 'delivery_id'> & {
  readonly webhookId: string
  readonly claimed: Claimed
  readonly verdict: Verdict
  readonly nowMs: number
  readonly result: string
}

/**
 * Records an attempt. Returns false if this process was suspended for longer than `busyMs`, so that another process has claimed the webhook. Then
 * only a delivery is recorded: the other process decides whether the webhook is failing.
 */
const writeDown = async (
  pool: pg.Pool,
  { delivery_id, webhookId, claimed, verdict, nowMs, result }: Attempt,
): Promise<boolean> => {
  const at = new Date(nowMs)
  const { rowCount } = await pool.query(
    `with own as (
       update webhook_endpoints set failing_since = case when $2 = 'delivered' then null else coalesce(failing_since, $3) end
        where webhook_id = $6 and busy_until = $7 returning webhook_id),
     done as (
       update webhook_deliveries set state = $2, attempts = attempts + 1, last_attempt_at = $3, last_result = $4, next_attempt_at = $5
        where delivery_id = $1 and state = 'pending' and ($2 = 'delivered' or exists (select from own)))
     select from own`,
    [
      delivery_id,
      stateAfter[verdict.kind],
      at,
      result,
      verdict.kind === 'again' ? new Date(verdict.atMs) : at,
      webhookId,
      claimed.claimed_until,
    ],
  )
  if (rowCount === 0) return false
  if (verdict.kind !== 'disable') return true
  await pool.query(
    `with given_up as (update webhook_deliveries set state = 'dead', last_result = coalesce(last_result, 'not sent: the webhook was disabled')
        where webhook_id = $1 and state = 'pending')
     update webhook_endpoints set disabled_at = $2, disabled_reason = $3 where webhook_id = $1`,
    [webhookId, at, verdict.reason],
  )
  return true
}

const minuteMs = 60_000
const hourMs = 60 * minuteMs

/** The delays after each attempt: eight attempts within about a day. */
export const retryDelaysMs: readonly number[] = [
  minuteMs,
  5 * minuteMs,
  30 * minuteMs,
  2 * hourMs,
  4 * hourMs,
  8 * hourMs,
  8 * hourMs,
]
/** Each delay is extended by up to this share, so that messages that failed at the same time are not retried at the same time. */
const spread = 0.1
/** A webhook to which no message could be delivered for this long is disabled. */
export const failingMsMax = 3 * 24 * hourMs

/** Returns the time of the next attempt after this many attempts, or null after the last one. `chance` is from 0 to 1. */
export const nextAttemptMs = (attempts: number, nowMs: number, chance: number): number | null => {
  const delayMs = retryDelaysMs[attempts - 1]
  return delayMs === undefined ? null : nowMs + Math.floor(delayMs * (1 + spread * chance))
}

/** The consequence of an attempt for the message and its webhook. */
type Verdict =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'again'; readonly atMs: number }
  | { readonly kind: 'dead' }
  /** The webhook is disabled, and its waiting messages are dead. */
  | { readonly kind: 'disable'; readonly reason: string }

export const verdictOf = ({
  status,
  attempts,
  failingSinceMs,
  nowMs,
  chance,
}: {
  /** Null: there was no answer. */
  readonly status: number | null
  /** Includes this attempt. */
  readonly attempts: number
  readonly failingSinceMs: number | null
  readonly nowMs: number
  readonly chance: number
}): Verdict => {
  if (status !== null && status >= 200 && status < 300) return { kind: 'delivered' }
  if (status === 410) return { kind: 'disable', reason: 'the receiver answered 410 Gone' }
  const atMs = nextAttemptMs(attempts, nowMs, chance)
  if (atMs !== null) return { kind: 'again', atMs }
  if (failingSinceMs === null || nowMs - failingSinceMs < failingMsMax) return { kind: 'dead' }
  return { kind: 'disable', reason: `every attempt failed since ${new Date(failingSinceMs).toISOString()}` }
}
