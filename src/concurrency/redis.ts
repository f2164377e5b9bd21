import type { Redis, Result } from 'ioredis'

/**
 * A connection to the Redis that processes share, with the one script that runs there. Nothing waits for a connection,
 * and nothing is sent twice: by then the caller has another answer, and a call must not be counted twice.
 */

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** The script the connection was opened with; `keys` is how many of the arguments are keys. */
    runScript(keys: number, ...args: (string | number)[]): Result<unknown, Context>
  }
}

const connectMaxMs = 2_000
/** A connection that stays silent this long after being asked is replaced: its other end may be gone. */
const silenceMaxMs = 5_000
const reconnectPauseMs = 50
const reconnectPauseMaxMs = 1_000

/** Does not wait until the connection exists. `url` holds a password: never logged. */
export const openRedis = async ({
  url,
  name,
  script,
  commandTimeoutMs,
}: {
  readonly url: string
  readonly name: string
  readonly script: string
  /** A command that is not answered by then fails. */
  readonly commandTimeoutMs?: number
}): Promise<Redis> => {
  const Redis = await loadClient()
  const redis = new Redis(url, {
    connectionName: name,
    protocol: 2,
    disableClientInfo: true,
    connectTimeout: connectMaxMs,
    socketTimeout: silenceMaxMs,
    ...(commandTimeoutMs === undefined ? {} : { commandTimeout: commandTimeoutMs }),
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // Gathering the commands of a turn into one write was measured: it was slower for every number of callers.
    enableAutoPipelining: false,
    retryStrategy: (times) =>
      Math.min(reconnectPauseMs * 2 ** Math.min(times, 10), reconnectPauseMaxMs) * (0.5 + Math.random() / 2),
    // After a failover the old primary takes no writes; the name may lead to the new one.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
  })
  redis.defineCommand('runScript', { lua: script })
  return redis
}

/** Loaded only if there is a Redis. Strings are as fast after it as before. */
const loadClient = async (): Promise<typeof Redis> => {
  const client = await import('ioredis')
  quickenStrings()
  return client.Redis
}

/**
 * The package defines a class that extends String. That puts `String.prototype` into V8's slow form: `charCodeAt` takes five
 * times as long in the whole process. V8 looks again when a property is stored in a String object, and makes it fast.
 */
const quickenStrings = (): void => {
  const text: { stored?: true } = Object('')
  text.stored = true
}

/** The message alone: an error of the client carries the command it failed at, which may be the one with the password. */
export const reasonOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.message || ('code' in error ? String(error.code) : error.name)
}
