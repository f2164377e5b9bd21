import { overviewFor } from './cli/overview.ts'

const words = process.argv.slice(2)
const overview = overviewFor(words)

// A reader such as head may close the pipe early, which is not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? (process.exitCode ?? 0) : 1),
)
// Even if nothing reads the output, the work is completed.
process.stderr.on('error', () => undefined)
// Everything is written and closed, so the process exits without waiting for gRPC's DNS look-ups.
if (overview === null) {
  const { runCommandLine } = await import('./cli/run.ts')
  process.exit(await runCommandLine(words))
}
process.stdout.write(`${overview}\n`)
