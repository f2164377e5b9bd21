import { useCompileCache } from './foundation/compile-cache.ts'

useCompileCache()
const words = process.argv.slice(2)
const { overviewFor } = await import('./cli/overview.ts')
const overview = overviewFor(words)

// A reader that has seen enough, such as head, closes the pipe: that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? (process.exitCode ?? 0) : 1),
)
// The output has no reader. The work is completed anyway.
process.stderr.on('error', () => undefined)
// Everything is written and closed by now. A DNS look-up of gRPC may still wait for its time-out; the exit does not wait for it.
if (overview === null) {
  const { runCommandLine } = await import('./cli/run.ts')
  process.exit(await runCommandLine(words))
}
process.stdout.write(`${overview}\n`)
