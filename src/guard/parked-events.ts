import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'

const lookEveryMs = 2_000
/** If more streams than this have parked events, the release itself is faulty, and a longer list would not help. */
const streamsMax = 1_000

/**
 * Reports, immediately and then every two seconds, the streams with events that the projector has parked for a projection about access. The rows
 * of such a stream do not match its events, so access must not depend on them.
 */
export const watchParked = async ({
  pool,
  projection,
  tell,
  logger,
}: {
  pool: pg.Pool
  projection: string
  tell: (streams: readonly string[]) => Promise<void>
  logger: Logger
}): Promise<{ stop(): Promise<void> }> => {
  const stopping = new AbortController()
  let said: ReadonlySet<string> = new Set()

  const look = async (): Promise<void> => {
    const { rows } = await pool.query<{ stream: string; error: string }>(
      `select distinct on (stream) stream, error from parked_events where projection = $1 and released_at is null
        order by stream, position limit $2`,
      [projection, streamsMax],
    )
    for (const { stream, error } of rows)
      if (!said.has(stream))
        logger.fatal(
          { projection, stream, error },
          'an event of a projection about access was set aside; its stream is now read from the event log instead',
        )
    said = new Set(rows.map(({ stream }) => stream))
    await tell([...said])
  }

  const run = async (): Promise<void> => {
    let away = false
    while (!stopping.signal.aborted) {
      await sleep(lookEveryMs, undefined, { signal: stopping.signal, ref: false }).catch(() => undefined)
      if (stopping.signal.aborted) return
      try {
        await look()
        away = false
      } catch (error) {
        // The last state is kept, and the failure is logged only once.
        if (!away) logger.error({ err: error, projection }, 'the list of parked events cannot be read')
        away = true
      }
    }
  }

  await look()
  const running = run()
  return {
    stop: async () => {
      stopping.abort()
      await running
    },
  }
}
