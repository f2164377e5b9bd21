import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { freePort } from '../support/free-port.ts'

const startDeadlineMs = 60_000

/** A Redis for the test: a real server process that can be killed, frozen and restarted at its address. */
export type RedisServer = {
  readonly url: string
  /** Kills the server: connections break and counters are lost. */
  kill(): Promise<void>
  /** Starts the server again on the same port, with empty counters. */
  start(): Promise<void>
  /** The server stays connected and accepts new connections, but does not answer. */
  freeze(): void
  thaw(): void
  readonly client: Redis
  close(): Promise<void>
}

export const startRedisServer = async (password?: string): Promise<RedisServer> => {
  if (spawnSync('redis-server', ['--version']).error !== undefined)
    throw new Error(
      'There is no redis-server in PATH. These tests run a real one: apt-get install redis-server',
    )
  const port = await freePort()
  const credentials = password === undefined ? '' : `:${password}@`
  const url = `redis://${credentials}127.0.0.1:${port}`
  let child: ChildProcess | undefined
  const start = async (): Promise<void> => {
    child = spawn(
      'redis-server',
      [
        '--port',
        String(port),
        '--bind',
        '127.0.0.1',
        '--save',
        '',
        '--appendonly',
        'no',
        ...(password === undefined ? [] : ['--requirepass', password]),
      ],
      { stdio: 'ignore' },
    )
    await untilAnswering(url)
  }
  const kill = async (): Promise<void> => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }
  await start()
  const client = new Redis(url, { maxRetriesPerRequest: null })
  client.on('error', () => undefined)
  return {
    url,
    kill,
    start,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    client,
    close: async () => {
      client.disconnect()
      child?.kill('SIGCONT')
      await kill()
    },
  }
}

const untilAnswering = async (url: string): Promise<void> => {
  for (const end = Date.now() + startDeadlineMs; ; await sleep(20)) {
    const probe = new Redis(url, { lazyConnect: true, retryStrategy: null })
    probe.on('error', () => undefined)
    try {
      await probe.connect()
      await probe.ping()
      return
    } catch (error) {
      if (Date.now() > end) throw new Error('redis-server did not start', { cause: error })
    } finally {
      probe.disconnect()
    }
  }
}
