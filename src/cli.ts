import { useCompileCache } from './foundation/compile-cache.ts'

useCompileCache()
const words = process.argv.slice(2)
const { overviewFor } = await import('./cli/overview.ts')
const overview = overviewFor(words)

// A reader that has seen enough, such as head, closes the pipe: that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? (process.exitCode ?? 0) : 1),
)
// No one reads what would be said: what is being done is done.
process.stderr.on('error', () => undefined)
// All is written and closed by now. A look-up that gRPC began in the DNS may still wait for its time-out, and does not hold up the end.
if (overview === null) {
  const { runCommandLine } = await import('./cli/run.ts')
  process.exit(await runCommandLine(words))
}
process.stdout.write(`${overview}\n`)
