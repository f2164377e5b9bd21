import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'

/** Child processes of a benchmark: none outlives it, whatever happens. */

const alive = new Set<ChildProcess>()
const startTimeoutMs = 60_000
const stopTimeoutMs = 40_000

// SIGTERM, not SIGKILL: the service has a PostgreSQL of its own to end.
process.on('exit', () => {
  for (const child of alive) child.kill('SIGTERM')
})
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1))

export const startChild = (args: readonly string[], options: SpawnOptions): ChildProcess =>
  startCommand(process.execPath, args, options)

export const startCommand = (
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess => {
  const child = spawn(command, [...args], options)
  alive.add(child)
  child.once('exit', () => alive.delete(child))
  return child
}

/** Resolves with the first group of `pattern` in what the child prints; rejects when it ends or a minute passes. */
export const printed = (child: ChildProcess, pattern: RegExp): Promise<string> =>
  new Promise((resolve, reject) => {
    let text = ''
    const timer = setTimeout(
      () => reject(new Error(`nothing like ${pattern} after ${startTimeoutMs} ms: ${text}`)),
      startTimeoutMs,
    )
    child.once('exit', (code) =>
      reject(new Error(`ended with ${code} before it printed ${pattern}: ${text}`)),
    )
    child.stdout?.on('data', (chunk: Buffer) => {
      text = (text + chunk.toString()).slice(-10_000)
      const found = pattern.exec(text)?.[1]
      if (found === undefined) return
      clearTimeout(timer)
      resolve(found)
    })
  })

/** Asks a child to end and waits for it; kills one that does not. */
export const stopChild = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  child.kill('SIGTERM')
  const waiting = new AbortController()
  const late = sleep(stopTimeoutMs, 'late', { signal: waiting.signal }).catch(() => '')
  if ((await Promise.race([ended, late])) === 'late') child.kill('SIGKILL')
  waiting.abort()
}

/** Asks `ready` until it says yes; throws after the deadline. */
export const until = async (
  what: string,
  ready: () => Promise<boolean>,
  { timeoutMs = startTimeoutMs, everyMs = 20 } = {},
): Promise<void> => {
  const deadline = Date.now() + timeoutMs
  while (!(await ready())) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${timeoutMs} ms`)
    await sleep(everyMs)
  }
}
