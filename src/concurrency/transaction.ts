import type pg from 'pg'

/**
 * The statements that begin a transaction. If this process is frozen, or cut off from the server, in the middle of the transaction, the server ends
 * it after 30 s. Otherwise its locks would stop every other process. The setting also works behind a pooler that ignores those of connections.
 */
export const begin = "begin; set local idle_in_transaction_session_timeout = '30s'"

/** Runs `work` in a transaction. If the connection fails, it is closed. Throws the errors of `work`. */
export async function inTransaction<Result>(
  pool: Pick<pg.Pool, 'connect'>,
  work: (client: pg.PoolClient) => Promise<Result>,
): Promise<Result> {
  const client = await pool.connect()
  let broken: Error | undefined
  const breaks = (error: Error): void => {
    broken = error
  }
  client.on('error', breaks)
  try {
    await client.query(begin)
    const result = await work(client)
    await client.query('commit')
    return result
  } catch (error) {
    await client.query('rollback').catch(breaks)
    throw error
  } finally {
    client.off('error', breaks)
    client.release(broken)
  }
}
