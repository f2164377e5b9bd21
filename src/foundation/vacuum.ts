import pg from 'pg'

/** Limits the wait for a lock. Longer than vacuuming takes. */
const lockTimeoutMs = 60_000

/**
 * Removes deleted rows from tables now instead of at the next autovacuum. Their bytes may remain in free space and in the write-ahead log.
 * Returns the reason if a table could not be vacuumed, otherwise null.
 */
export const vacuum = async (ownerUrl: string, tables: readonly string[]): Promise<string | null> => {
  const client = new pg.Client({
    connectionString: ownerUrl,
    application_name: 'vacuum',
    lock_timeout: lockTimeoutMs,
  })
  const skipped: string[] = []
  // If a role does not own a table, the statement succeeds with only a notice.
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
