/**
 * Runs commands one after the other, as src/cli.ts runs one. Each command has its own environment. After each command, its exit
 * code is written to stdout and stderr.
 */
import { overviewFor } from '../../../src/cli/overview.ts'
import { runCommandLine } from '../../../src/cli/run.ts'

export type Typed = { readonly words: string[]; readonly environment: Readonly<Record<string, string>> }

process.on('message', async ({ words, environment }: Typed) => {
  for (const name of Object.keys(process.env)) delete process.env[name]
  Object.assign(process.env, environment)
  const overview = overviewFor(words)
  if (overview !== null) process.stdout.write(`${overview}\n`)
  const code = overview === null ? await runCommandLine(words) : 0
  for (const output of [process.stdout, process.stderr]) output.write(`\0${code}\0`)
})
process.on('disconnect', () => process.exit())
