/** Processes that run one command after another, because starting a process and loading its modules takes longer than most commands. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'
import { join } from 'node:path'
import type { Typed } from './command-line.ts'

export type Ran = { readonly code: number | null; readonly out: string; readonly err: string }

const waiting: ChildProcess[] = []

/** Runs a command in an idle process. The exit code is null if the process had to be killed after `deadlineMs`. */
export const runTyped = async (typed: Typed, deadlineMs: number): Promise<Ran> => {
  const child = waiting.pop() ?? start()
  const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs)
  const outputs = Promise.all([textOf(child.stdout as Socket), textOf(child.stderr as Socket)])
  child.send(typed)
  const [out, err] = await outputs
  clearTimeout(timer)
  if (out.code !== null && err.code !== null) waiting.push(child)
  // Otherwise the command has ended the process.
  else if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  return { code: out.code ?? child.exitCode, out: out.text, err: err.text }
}

const start = (): ChildProcess => {
  const child = fork(join(import.meta.dirname, 'command-line.ts'), {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    execArgv: [],
    cwd: join(import.meta.dirname, '../../..'),
  })
  child.once('exit', () => {
    const at = waiting.indexOf(child)
    if (at >= 0) waiting.splice(at, 1)
  })
  // The child ends with this process, which does not wait for it.
  child.unref()
  child.channel?.unref()
  for (const output of [child.stdout, child.stderr]) if (output instanceof Socket) output.unref()
  return child
}

/** The text up to the command's exit code, or up to the end of the process. Lines logged after that are not included. */
const textOf = (output: Socket): Promise<{ readonly text: string; readonly code: number | null }> =>
  new Promise((resolve) => {
    let text = ''
    const end = (code: number | null): void => {
      output.off('data', look).off('close', closed).unref()
      resolve({ text, code })
    }
    const look = (chunk: Buffer): void => {
      text += chunk.toString()
      const mark = /\0(\d+)\0/.exec(text)
      if (mark === null) return
      text = text.slice(0, mark.index)
      end(Number(mark[1]))
    }
    const closed = (): void => end(null)
    output.on('data', look).once('close', closed).ref()
  })
