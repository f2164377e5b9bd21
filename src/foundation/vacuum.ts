import pg from 'pg'

/** How long to wait for a lock. Vacuuming by another process takes less time. */
const lockTimeoutMs = 60_000

/**
 * Removes deleted rows from tables now instead of at the next autovacuum. Their bytes can remain in free space and in the write-ahead log.
 * Returns null, or the reason why a table could not be vacuumed.
 */
export const vacuum = async (ownerUrl: string, tables: readonly string[]): Promise<string | null> => {
  const client = new pg.Client({
    connectionString: ownerUrl,
    application_name: 'vacuum',
    lock_timeout: lockTimeoutMs,
  })
  const skipped: string[] = []
  // If the role does not own a table, the statement skips it with a warning and succeeds.
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
