import { createHash } from 'node:crypto'
import type pg from 'pg'
import { Refused } from './failures.ts'

/**
 * Idempotency-Keys of the admin API. A key is taken before its command runs, so the command runs at most once, in any process. If the process
 * ends before the answer is stored, the key stays taken and the outcome is unknown.
 */

const keyForm = /^[\x21-\x7e]{1,255}$/

const digest = (...parts: readonly string[]): Buffer =>
  createHash('sha256').update(JSON.stringify(parts)).digest()

type Request = { readonly user: string; readonly key: string; readonly asked: string }

/** Null: the key is new, and the command may run. Otherwise the answer to the first request. Throws `Refused`. */
export const takeKey = async (
  pool: Pick<pg.Pool, 'query'>,
  { user, key, asked }: Request,
): Promise<string | null> => {
  if (!keyForm.test(key))
    throw new Refused('input', 'Idempotency-Key: 1 to 255 printable ASCII characters without spaces', {
      field: 'Idempotency-Key',
    })
  const { rowCount } = await pool.query(
    `with swept as (delete from admin_requests where sent_at < now() - interval '1 day')
     insert into admin_requests (id_hash, asked_hash) values ($1, $2) on conflict do nothing`,
    [digest(user, key), digest(asked)],
  )
  if (rowCount === 1) return null
  const { rows } = await pool.query<{ same: boolean; answer: string | null }>(
    'select asked_hash = $2 as same, answer from admin_requests where id_hash = $1',
    [digest(user, key), digest(asked)],
  )
  const [first] = rows
  if (first === undefined)
    throw new Refused('conflict', 'the request with this Idempotency-Key was just refused; send it again')
  if (!first.same) throw new Refused('conflict', 'this Idempotency-Key was used with another request')
  if (first.answer === null)
    throw new Refused(
      'conflict',
      'the request with this Idempotency-Key is in progress, or its outcome is unknown: check the outcome before you repeat it with another key',
    )
  return first.answer
}

export const keepAnswer = async (
  pool: Pick<pg.Pool, 'query'>,
  { user, key }: Request,
  answer: string,
): Promise<void> => {
  await pool.query('update admin_requests set answer = $2 where id_hash = $1', [digest(user, key), answer])
}

/** For a refused command, which did nothing, so that its key can be used again. */
export const releaseKey = async (pool: Pick<pg.Pool, 'query'>, { user, key }: Request): Promise<void> => {
  await pool.query('delete from admin_requests where id_hash = $1', [digest(user, key)])
}
