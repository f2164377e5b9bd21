/** A packaged server that a test starts, watches and stops by its process id. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { delimiter, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export type ServerProcess = {
  /** The server's output, from its standard streams and its log. */
  log(): Promise<string>
  /** Ends the process and its children. Can be called twice. */
  close(): Promise<void>
}

const startDeadlineMs = 60_000
const endDeadlineMs = 5_000
const greetingDeadlineMs = 8_000
/** The limit on the output kept of a server's standard streams. */
const outputCharactersMax = 1_000_000

/** PATH with the folders for servers in Debian, which a test's PATH might lack. */
const path = [process.env.PATH, '/usr/sbin', '/sbin'].join(delimiter)

/** The full path of a command. A full path is returned unchanged. */
export const pathOf = (command: string): string => {
  for (const directory of path.split(delimiter)) {
    const file = resolve(directory, command)
    try {
      accessSync(file, constants.X_OK)
      return file
    } catch {}
  }
  throw new Error(`There is no ${command} in PATH. These tests run real servers; .ci/run installs them`)
}

/**
 * Starts a server in the foreground and in its own process group, and resolves once `ready` no longer throws. Throws an Error
 * with the server's log if the server ends first, or takes longer than a minute.
 */
export const startProcess = async ({
  command,
  args,
  logFile,
  ready,
}: {
  command: string
  args: readonly string[]
  /** The log file, if the server does not use its standard streams. */
  logFile?: string
  ready: () => Promise<unknown>
}): Promise<ServerProcess> => {
  const child = spawn(pathOf(command), args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    env: { ...process.env, PATH: path },
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (octets) => {
      if (output.length < outputCharactersMax) output += String(octets)
    })
  let failure: Error | undefined
  child.on('error', (error) => {
    failure = error
  })
  const killGroup = (): void => {
    // The group has the id of its first member, which is the process started here.
    if (child.pid !== undefined && isRunning(child)) process.kill(-child.pid, 'SIGKILL')
  }
  process.once('exit', killGroup)
  const log = async (): Promise<string> =>
    output + (logFile === undefined ? '' : await readFile(logFile, 'utf8').catch(() => ''))
  const close = async (): Promise<void> => {
    process.off('exit', killGroup)
    if (child.pid === undefined || !isRunning(child)) return
    const ended = once(child, 'exit')
    child.kill('SIGTERM')
    const timer = setTimeout(killGroup, endDeadlineMs)
    await ended
    clearTimeout(timer)
  }
  let last: unknown
  for (const end = performance.now() + startDeadlineMs; performance.now() < end; await sleep(50)) {
    if (failure !== undefined || !isRunning(child)) break
    try {
      await ready()
      return { log, close }
    } catch (error) {
      last = error
    }
  }
  await close()
  throw new Error(`${command} did not start. It said:\n${await log()}`, { cause: failure ?? last })
}

const isRunning = ({ exitCode, signalCode }: ChildProcess): boolean =>
  exitCode === null && signalCode === null

/** Resolves if a server accepts connections at that address, and otherwise rejects. */
export const accepts = async (address: string, port: number): Promise<void> => {
  const socket = connect(port, address)
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(greetingDeadlineMs) })
  } finally {
    socket.destroy()
  }
}

/** Resolves if a mail server greets at that address, and otherwise rejects. */
export const greets = async (address: string, port: number): Promise<void> => {
  const socket = connect(port, address)
  try {
    const [octets] = await once(socket, 'data', { signal: AbortSignal.timeout(greetingDeadlineMs) })
    if (!String(octets).startsWith('220')) throw new Error(`greeted with ${String(octets)}`)
    socket.end('QUIT\r\n')
  } finally {
    socket.destroy()
  }
}
