import type { Redis, Result } from 'ioredis'

/**
 * A connection to the Redis that processes share, with one script. A command never waits for a connection and is never sent again: by then, its
 * caller has used another answer, and a call must not be counted twice.
 */

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** Runs the script that was passed to `openRedis`. The first `keys` arguments are keys. */
    runScript(keys: number, ...args: (string | number)[]): Result<unknown, Context>
  }
}

const connectMaxMs = 2_000
/** A connection without an answer for this long after a command is replaced, because the server may no longer exist. */
const silenceMaxMs = 5_000
const reconnectPauseMs = 50
const reconnectPauseMaxMs = 1_000
/** The minimum time between two reconnects because the server is a replica. */
const leaveReplicaPauseMs = 1_000

/** Does not wait for the connection. `url` can contain a password, so it must not be logged. */
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
  let leftReplicaAtMs = Number.NEGATIVE_INFINITY
  const leavesReplica = (error: Error): boolean => {
    if (!error.message.startsWith('READONLY') || performance.now() - leftReplicaAtMs < leaveReplicaPauseMs)
      return false
    leftReplicaAtMs = performance.now()
    return true
  }
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
    // In measurements, combining the commands of a turn was slower for any number of callers.
    enableAutoPipelining: false,
    retryStrategy: (times) =>
      Math.min(reconnectPauseMs * 2 ** Math.min(times, 10), reconnectPauseMaxMs) * (0.5 + Math.random() / 2),
    // After a failover, the old primary refuses writes, and its name can already lead to the new primary.
    reconnectOnError: leavesReplica,
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
 * ioredis defines a class that extends String, which puts `String.prototype` into a slow mode of V8. `charCodeAt` then takes five times as long in
 * the whole process. Storing a property in a String object makes V8 restore the fast mode.
 */
const quickenStrings = (): void => {
  const text: { stored?: true } = Object('')
  text.stored = true
}

/** Returns only the message, because the client's error also contains the command and can therefore contain the password. */
export const reasonOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.message || ('code' in error ? String(error.code) : error.name)
}
