import { createHash } from 'node:crypto'
import type pg from 'pg'
import { decodeTime } from 'ulid'
import { CommandRefused } from '../ledger/commit.ts'

/**
 * A form is taken once, in whatever process and however often it is sent: by a reload, by two clicks, by a page that is kept
 * open in two windows. Each form that is shown has a token of its own; what was done with it before is not done again. Where it is
 * not known what became of it, it counts as done.
 */

/** It was sent before. */
export class FormSentBefore extends Error {
  override name = 'FormSentBefore'
}

const pattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
/** Half of what the tokens that were sent are kept for. */
const ageMaxMs = 12 * 60 * 60 * 1_000
const aheadMaxMs = 60_000

/**
 * Takes a form. Throws `FormSentBefore` where it was taken, and `CommandRefused` for what is no token, or an old one: then the
 * form is shown again with a new one.
 */
export const takeForm = async (
  pool: pg.Pool,
  { user, path, once }: { readonly user: string; readonly path: string; readonly once: string },
  nowMs: number,
): Promise<void> => {
  const ageMs = pattern.test(once) ? nowMs - decodeTime(once) : Number.NaN
  if (!(ageMs <= ageMaxMs && ageMs >= -aheadMaxMs))
    throw new CommandRefused('the form is out of date, send it once more')
  const { rowCount } = await pool.query(
    `with swept as (delete from dashboard_forms where sent_at < now() - interval '1 day')
     insert into dashboard_forms (id_hash) values ($1) on conflict do nothing`,
    [createHash('sha256').update([user, path, once].join('\n')).digest()],
  )
  if (rowCount === 0) throw new FormSentBefore()
}
