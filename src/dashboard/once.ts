import { createHash } from 'node:crypto'
import type pg from 'pg'
import { decodeTime } from 'ulid'
import { CommandRefused } from '../ledger/write/commit.ts'

/**
 * A form is accepted once, in any process and however often it is sent: by a reload, by two clicks, or by a page
 * open in two windows. Each displayed form has its own token, and its change is not made again. If the outcome is
 * unknown, it counts as done.
 */

/** It was sent before. */
export class FormSentBefore extends Error {
  override name = 'FormSentBefore'
}

const pattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
/** Half of the time for which used tokens are stored. */
const ageMaxMs = 12 * 60 * 60 * 1_000
const aheadMaxMs = 60_000

/**
 * Accepts a form. Throws `FormSentBefore` if it was accepted before, and `CommandRefused` for an invalid or old token: then the
 * form is shown again with a new one.
 */
export const takeForm = async (
  pool: pg.Pool,
  { user, path, once }: { readonly user: string; readonly path: string; readonly once: string },
  nowMs: number,
): Promise<void> => {
  const ageMs = pattern.test(once) ? nowMs - decodeTime(once) : Number.NaN
  if (!(ageMs <= ageMaxMs && ageMs >= -aheadMaxMs))
    throw new CommandRefused('the form is out of date, send it again')
  const { rowCount } = await pool.query(
    `with swept as (delete from dashboard_forms where sent_at < now() - interval '1 day')
     insert into dashboard_forms (id_hash) values ($1) on conflict do nothing`,
    [createHash('sha256').update([user, path, once].join('\n')).digest()],
  )
  if (rowCount === 0) throw new FormSentBefore()
}
