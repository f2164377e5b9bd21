import pg from 'pg'

/** Longer than vacuuming takes, but not for ever behind a lock that is never released. */
const lockTimeoutMs = 60_000

/**
 * Takes deleted rows out of tables at once instead of when autovacuum comes by. Their bytes may stay in free space and in
 * the write-ahead log. Says what kept it from a table; null: nothing did.
 */
export const vacuum = async (ownerUrl: string, tables: readonly string[]): Promise<string | null> => {
  const client = new pg.Client({
    connectionString: ownerUrl,
    application_name: 'vacuum',
    lock_timeout: lockTimeoutMs,
  })
  const skipped: string[] = []
  // Who does not own a table is told so in passing, and the statement succeeds.
  client.on('notice', ({ severity, message }) => {
    if (severity === 'WARNING') skipped.push(message ?? 'a table was skipped')
  })
  client.on('error', () => undefined)
  try {
    await client.connect()
    await client.query(`vacuum ${tables.join(', ')}`)
    return skipped.length === 0 ? null : skipped.join('; ')
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  } finally {
    await client.end().catch(() => undefined)
  }
}
