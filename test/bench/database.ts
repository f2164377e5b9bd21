import { rm } from 'node:fs/promises'
import pino, { type Logger } from 'pino'
import { parseConfig } from '../../src/config.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { newDataDir } from './service.ts'

/** A foundation of our own in this process, on an embedded PostgreSQL with the service's own settings. */
export const withFoundation = async <Result>(
  use: (opened: { foundation: Foundation; dataDir: string; logger: Logger }) => Promise<Result>,
  /** Default: the log in that PostgreSQL. */
  eventLogUrl?: string,
): Promise<Result> => {
  const dataDir = await newDataDir()
  const logger = pino({ level: 'warn' }, pino.destination(2))
  try {
    const foundation = await openFoundation(parseConfig({ DATA_DIR: dataDir, EVENT_LOG_URL: eventLogUrl }), {
      logger,
    })
    try {
      return await use({ foundation, dataDir, logger })
    } finally {
      await foundation.close()
    }
  } finally {
    await rm(dataDir, { recursive: true, force: true })
  }
}

/** Keeps `width` of `work` under way until the time is up; resolves with how many were done per second. */
export const keepBusy = async (
  { width, seconds }: { width: number; seconds: number },
  work: (lane: number) => Promise<number>,
): Promise<number> => {
  const startedAt = performance.now()
  const endsAt = startedAt + seconds * 1_000
  let done = 0
  await Promise.all(
    Array.from({ length: width }, async (_, lane) => {
      while (performance.now() < endsAt) {
        const more = await work(lane)
        // Not `done += await …`: that adds to what `done` was before the wait.
        done += more
      }
    }),
  )
  return (done * 1_000) / (performance.now() - startedAt)
}
