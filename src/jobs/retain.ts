import type pg from 'pg'

/** src/guides/idempotency.md, "Idempotency-Key": first answers are kept this long. That a key was used is kept for ever. */
const answerRetentionHours = 24
export const forgottenAtOnceMax = 10_000

/** Forgets the bodies of old idempotent answers. Returns how many; call again while it returns the maximum. */
export const forgetAnswers = async (pool: pg.Pool): Promise<number> => {
  const { rowCount } = await pool.query(
    `update idempotent_calls set answer = null
      where (organization_id, key_hash) in (
        select organization_id, key_hash from idempotent_calls
         where answer is not null and answered_at < now() - $1 * interval '1 h' order by answered_at limit $2)`,
    [answerRetentionHours, forgottenAtOnceMax],
  )
  return rowCount ?? 0
}

/** As many portions as there are: what is promised to be forgotten in time is, however much it is. Returns how many. */
export const inPortions = async (portionMax: number, run: () => Promise<number>): Promise<number> => {
  let forgotten = 0
  for (;;) {
    const portion = await run()
    forgotten += portion
    if (portion < portionMax) return forgotten
  }
}
