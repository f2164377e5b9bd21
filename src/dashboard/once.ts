import { createHash } from 'node:crypto'
import type pg from 'pg'
import { decodeTime } from 'ulid'
import { CommandRefused } from '../ledger/command.ts'

/** Accepts each displayed form only once, even if the outcome of its change is unknown. All processes share the list of accepted forms. */

/** Thrown if the form was already accepted. */
export class FormSentBefore extends Error {
  override name = 'FormSentBefore'
}

const pattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
/** Shorter than the time for which used tokens are stored (one day), so that a token cannot be used twice. */
const ageMaxMs = 12 * 60 * 60 * 1_000
const aheadMaxMs = 60_000

/** Throws `FormSentBefore` if the form was already accepted, or `CommandRefused` if its token is invalid or too old. */
export const takeForm = async (
  pool: pg.Pool,
  { user, path, once }: { readonly user: string; readonly path: string; readonly once: string },
  nowMs: number,
): Promise<void> => {
  const ageMs = pattern.test(once) ? nowMs - decodeTime(once) : Number.NaN
  if (!(ageMs <= ageMaxMs && ageMs >= -aheadMaxMs))
    throw new CommandRefused('the form has expired; send it again')
  const { rowCount } = await pool.query(
    `with swept as (delete from dashboard_forms where sent_at < now() - interval '1 day')
     insert into dashboard_forms (id_hash) values ($1) on conflict do nothing`,
    [createHash('sha256').update([user, path, once].join('\n')).digest()],
  )
  if (rowCount === 0) throw new FormSentBefore()
}
