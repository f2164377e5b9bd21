import type pg from 'pg'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import { type MailboxEvidence, mailboxEvidence } from '../evidence.ts'

/**
 * A server that defers mail from unknown senders (greylisting) reveals only at the second attempt whether a mailbox exists. Calls do not wait
 * for the second attempt, so its result is stored for the next call.
 */

type MailboxCheck = { readonly evidence: MailboxEvidence; readonly checkedAt: string }

export type MailboxChecks = {
  find(addressHmac: string): Promise<MailboxCheck | null>
  keep(addressHmac: string, check: MailboxCheck): Promise<void>
  forget(): Promise<number>
}

/** The maximum age of a stored result. After that, the mailbox may have changed. */
export const checkHoursMax = 24
export const forgottenAtOnceMax = 10_000

export const createMailboxChecks = (pool: pg.Pool): MailboxChecks => ({
  find: async (addressHmac) => {
    const { rows } = await pool
      .query<{ evidence: string; checked_at: Date }>(
        `select evidence, checked_at from mailbox_checks
          where address_hmac = $1 and checked_at > now() - $2 * interval '1 h'`,
        [addressHmac, checkHoursMax],
      )
      .catch(unavailableWhenAway)
    const row = rows[0]
    if (row === undefined) return null
    return {
      evidence: mailboxEvidence.parse(JSON.parse(row.evidence)),
      checkedAt: row.checked_at.toISOString(),
    }
  },
  keep: async (addressHmac, { evidence, checkedAt }) => {
    await pool.query(
      `insert into mailbox_checks (address_hmac, evidence, checked_at) values ($1, $2, $3)
         on conflict (address_hmac) do update set evidence = excluded.evidence, checked_at = excluded.checked_at`,
      [addressHmac, JSON.stringify(evidence), checkedAt],
    )
  },
  forget: async () => {
    const { rowCount } = await pool.query(
      `delete from mailbox_checks where address_hmac in (
         select address_hmac from mailbox_checks where checked_at <= now() - $1 * interval '1 h' limit $2)`,
      [checkHoursMax, forgottenAtOnceMax],
    )
    return rowCount ?? 0
  },
})
