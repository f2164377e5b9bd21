import type { Redis, Result } from 'ioredis'

/**
 * A connection to the Redis that processes share, with one script. A command fails instead of waiting for a connection or being sent again,
 * because its caller already has another answer, and a call must not be counted twice.
 */

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** Runs the script that was passed to `openRedis`. `keys` is the number of arguments that are keys. */
    runScript(keys: number, ...args: (string | number)[]): Result<unknown, Context>
  }
}

const connectMaxMs = 2_000
/** A connection that stays silent this long after a command is replaced, because its other end may no longer exist. */
const silenceMaxMs = 5_000
const reconnectPauseMs = 50
const reconnectPauseMaxMs = 1_000

/** Does not wait for the connection. `url` contains a password: never log it. */
export const openRedis = async ({
  url,
  name,
  script,
  commandTimeoutMs,
}: {
  readonly url: string
  readonly name: string
  readonly script: string
  /** A command fails if it is not answered in this time. */
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
    // Measurements showed that writing all commands of a turn at the same time is slower for every number of callers.
    enableAutoPipelining: false,
    retryStrategy: (times) =>
      Math.min(reconnectPauseMs * 2 ** Math.min(times, 10), reconnectPauseMaxMs) * (0.5 + Math.random() / 2),
    // After a failover, the old primary accepts no writes, and its name may already lead to the new primary.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
  })
  redis.defineCommand('runScript', { lua: script })
  return redis
}

/** The client is loaded only if a Redis is configured. */
const loadClient = async (): Promise<typeof Redis> => {
  const client = await import('ioredis')
  quickenStrings()
  return client.Redis
}

/**
 * ioredis defines a class that extends String, which puts `String.prototype` into V8's slow form: `charCodeAt` then takes five times as long in
 * the whole process. Storing a property in a String object makes V8 restore the fast form.
 */
const quickenStrings = (): void => {
  const text: { stored?: true } = Object('')
  text.stored = true
}

/** Returns only the message, because an error of the client also contains its command, which may include the password. */
export const reasonOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.message || ('code' in error ? String(error.code) : error.name)
}
