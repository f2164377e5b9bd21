import type { Foundation } from '../foundation/foundation.ts'
import { Refused } from './failures.ts'

/**
 * Idempotency-Keys of the admin API. A key is reserved before its command runs, so the command runs at most once, in any process.
 * If the process ends before the answer is stored, the key stays reserved and the outcome is unknown.
 */

type Parts = Pick<Foundation, 'pool' | 'secrets'>

/** The digest is keyed, because a request to erase a person names that person. */
const digest = ({ secrets }: Parts, ...parts: readonly string[]): Buffer =>
  secrets.requestHmac(`admin request\n${JSON.stringify(parts)}`)

type Request = { readonly user: string; readonly key: string; readonly asked: string }

/** Returns null if the key is new and the command can run, and otherwise the answer to the first request. Throws `Refused`. */
export const takeKey = async (parts: Parts, { user, key, asked }: Request): Promise<string | null> => {
  // A statement of its own, because an insert would still conflict with rows that the same statement deletes.
  await parts.pool.query(`delete from admin_requests where sent_at < now() - interval '1 day'`)
  const { rowCount } = await parts.pool.query(
    'insert into admin_requests (id_hash, asked_hash) values ($1, $2) on conflict do nothing',
    [digest(parts, user, key), digest(parts, asked)],
  )
  if (rowCount === 1) return null
  const { rows } = await parts.pool.query<{ same: boolean; answer: string | null }>(
    'select asked_hash = $2 as same, answer from admin_requests where id_hash = $1',
    [digest(parts, user, key), digest(parts, asked)],
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

export const keepAnswer = async (parts: Parts, { user, key }: Request, answer: string): Promise<void> => {
  await parts.pool.query('update admin_requests set answer = $2 where id_hash = $1', [
    digest(parts, user, key),
    answer,
  ])
}

/** Releases the key of a refused command, which changed nothing, so that the key can be used again. */
export const releaseKey = async (parts: Parts, { user, key }: Request): Promise<void> => {
  await parts.pool.query('delete from admin_requests where id_hash = $1', [digest(parts, user, key)])
}
