import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const execute = promisify(execFile)

export type Ran = { readonly code: number; readonly stdout: string; readonly stderr: string }
export type RunOptions = {
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  readonly timeoutMs?: number
}

/** Runs a program to completion, and accepts any exit code. */
export const ran = async (
  [program = '', ...args]: readonly string[],
  { cwd, env = {}, timeoutMs = 240_000 }: RunOptions = {},
): Promise<Ran> => {
  const options = { cwd, env: { ...process.env, ...env }, timeout: timeoutMs, maxBuffer: 64 * 1024 * 1024 }
  try {
    return { code: 0, ...(await execute(program, args, options)) }
  } catch (error) {
    const { code = 1, stdout = '', stderr = String(error) } = error as Partial<Ran>
    return { code: typeof code === 'number' ? code : 1, stdout, stderr }
  }
}

/** Runs a program that must succeed, and returns its output. */
export const run = async (command: readonly string[], options?: RunOptions): Promise<string> => {
  const { code, stdout, stderr } = await ran(command, options)
  if (code !== 0)
    throw new Error(`${command.join(' ')} ended with ${code}: ${stderr.slice(-4_000)}${stdout.slice(-2_000)}`)
  return stdout.trim()
}

export const docker = (...args: readonly string[]): Promise<string> => run(['docker', ...args])
