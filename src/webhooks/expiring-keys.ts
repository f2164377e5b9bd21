import type pg from 'pg'
import type { Notice } from './notices.ts'
import { writeMessages } from './outbox.ts'

/** Warns webhooks about keys that will soon stop working. A projection is reliable enough here: a wrong row only causes a wrong warning. */

const dayMs = 24 * 3_600_000
/** A notice is sent this many days before a key stops working. A key with less than a day left gets only the last notice. */
const daysBefore = [7, 1] as const
const portionMax = 1_000

type EndingKey = {
  readonly key_id: string
  readonly organization_id: string
  readonly successor_id: string | null
  readonly ends_at: Date
}

/** Returns the notice that is due for a key, or null. */
export const expiryNotice = (
  { key_id, organization_id, successor_id, ends_at }: EndingKey,
  nowMs: number,
): Notice | null => {
  const leftMs = ends_at.getTime() - nowMs
  const days = daysBefore.findLast((many) => leftMs <= many * dayMs)
  if (days === undefined || leftMs <= 0) return null
  const expires_at = ends_at.toISOString()
  return {
    event: 'key.expiring',
    organizationId: organization_id,
    source: `${key_id}/${expires_at}/${days}`,
    at: new Date(nowMs).toISOString(),
    // The current time, so that webhooks created during the notice period also receive the notice.
    recordedAtMs: nowMs,
    data: { api_key_id: key_id, expires_at, days_before: days, successor_api_key_id: successor_id },
  }
}

/** Writes a message for each due notice. Returns the webhooks that have a new message. */
export const tellOfExpiringKeys = async (pool: pg.Pool, nowMs: number): Promise<string[]> => {
  const told = new Set<string>()
  let after: EndingKey | undefined
  for (;;) {
    const keys = await keysEndingSoon(pool, nowMs, after)
    const notices = keys.map((key) => expiryNotice(key, nowMs)).filter((notice) => notice !== null)
    for (const webhookId of await writeMessages(pool, notices, nowMs, { repeated: true })) told.add(webhookId)
    if (keys.length < portionMax) return [...told]
    after = keys.at(-1)
  }
}

/** Returns the next keys that stop working within the longest notice period. */
const keysEndingSoon = async (
  pool: pg.Pool,
  nowMs: number,
  after: EndingKey | undefined,
): Promise<EndingKey[]> => {
  const { rows } = await pool.query<EndingKey>(
    `select k.key_id, k.organization_id, k.successor_id, k.ends_at
       from (select *, least(expires_at, grace_until) as ends_at from api_keys where revoked_at is null) k
      where k.ends_at > $1 and k.ends_at <= $2 and k.key_id > $3
        and exists (select from webhook_endpoints e where e.disabled_at is null and 'key.expiring' = any (e.events)
                     and e.organization_id = k.organization_id)
      order by k.key_id limit $4`,
    [new Date(nowMs), new Date(nowMs + daysBefore[0] * dayMs), after?.key_id ?? '', portionMax],
  )
  return rows
}
