import { runCommandLine } from './cli/run.ts'

// A reader that has seen enough, such as head, closes the pipe: that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? (process.exitCode ?? 0) : 1),
)
// No one reads what would be said: what is being done is done.
process.stderr.on('error', () => undefined)
process.exitCode = await runCommandLine(process.argv.slice(2))
