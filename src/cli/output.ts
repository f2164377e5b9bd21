import { randomBytes } from 'node:crypto'
import { rmSync } from 'node:fs'
import { link, open, rename, rm, stat } from 'node:fs/promises'
import type { Write } from '../administration/declare.ts'
import { InputFault } from '../administration/input.ts'

/** Strings are joined up to this many characters, because each write costs a system call. */
const chunkLength = 256 * 1024

/**
 * Runs `use` with a `write` to the requested file or to standard output. The file is created when `use` succeeds; if `use` fails,
 * no file is created.
 */
export const withOutput = async <Result>(
  write: Write,
  { path, replace }: { readonly path: string | undefined; readonly replace: boolean },
  use: (write: Write) => Promise<Result>,
): Promise<Result> => {
  if (path === undefined) return gathered(write, use)
  if (path.trim() === '') throw new InputFault('out', 'the name of a file is empty')
  if (!replace) await refuseExisting(path)
  const draft = `${path}.${randomBytes(6).toString('hex')}.tmp`
  const file = await open(draft, 'wx', 0o600).catch(toldAs(path))
  // Removes the partial file if the process ends early, by Ctrl-C or because the reader closed the pipe.
  const dropDraft = (): void => rmSync(draft, { force: true })
  process.once('exit', dropDraft)
  try {
    const result = await gathered(async (text) => {
      await file.appendFile(text)
    }, use)
    await file.sync()
    await file.close()
    // A link fails if another process has created a file with this name; a rename would replace that file.
    if (replace) await rename(draft, path)
    else await link(draft, path).catch(toldAs(path))
    return result
  } finally {
    await file.close().catch(() => undefined)
    await rm(draft, { force: true })
    process.off('exit', dropDraft)
  }
}

const gathered = async <Result>(write: Write, use: (write: Write) => Promise<Result>): Promise<Result> => {
  let waiting = ''
  const result = await use(async (text) => {
    waiting += text
    if (waiting.length < chunkLength) return
    const chunk = waiting
    waiting = ''
    await write(chunk)
  })
  if (waiting !== '') await write(waiting)
  return result
}

const refuseExisting = async (path: string): Promise<void> => {
  const exists = await stat(path).then(
    () => true,
    () => false,
  )
  if (exists) throw alreadyThere(path)
}

const alreadyThere = (path: string): InputFault =>
  new InputFault('out', `${path} already exists; choose another name, or add --force to replace the file`)

const toldAs =
  (path: string) =>
  (error: unknown): never => {
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    if (code === 'EEXIST') throw alreadyThere(path)
    throw new InputFault(
      'out',
      `${path} cannot be written: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
