import { parseArgs } from 'node:util'
import { age } from './age.ts'
import { ageOfLog } from './age-of-log.ts'
import { append } from './append.ts'
import { call } from './call.ts'
import { dashboardPages } from './dashboard.ts'
import { eventLogVerify } from './event-log-verify.ts'
import { keyed } from './keyed.ts'
import { processes } from './processes.ts'
import { rebuild } from './rebuild.ts'
import { type BenchOptions, type Row, tableOf } from './row.ts'
import { start } from './start.ts'
import { statement } from './statement.ts'
import { takeTurn } from './turn.ts'

/** `node --cpu-prof test/bench/run.ts` shows the time spent in this process. */

const scenarios: Readonly<Record<string, (options: BenchOptions) => Promise<Row[]>>> = {
  call,
  append,
  rebuild,
  'event-log-verify': eventLogVerify,
  dashboard: dashboardPages,
  age,
  'age-of-log': ageOfLog,
  keyed,
  processes,
  start,
  statement,
}

const usage = `Prints ratios measured within one run, because absolute figures depend on the machine and its load.

Usage: npm run bench [-- OPTIONS]

  --only NAME,...  run only these (default: all): ${Object.keys(scenarios).join(', ')}
  --rounds N       repeat each measurement (default: 5)
  --seconds N      the length of each load (default: 5)
  --events N       the size of the event logs to prepare (default: 1000000)
  --long           also measure more processes and longer histories
  --bare-ulid      make the request ids of the route that is compared with a call by ulid(), which is slower
  --json           print JSON
  --help           print this text

DATABASE_URL names a PostgreSQL server to use instead of the embedded one.`

/** Ends this process with the exit code for wrong usage. */
const refuse = (why: string): never => {
  process.stderr.write(`bench: ${why}. Run it with --help to see the options.\n`)
  process.exit(2)
}

const { values } = (() => {
  try {
    return parseArgs({
      options: {
        only: { type: 'string' },
        rounds: { type: 'string', default: '5' },
        seconds: { type: 'string', default: '5' },
        events: { type: 'string', default: '1000000' },
        long: { type: 'boolean', default: false },
        'bare-ulid': { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    })
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error))
  }
})()
if (values.help) {
  process.stdout.write(`${usage}\n`)
  process.exit(0)
}
const numberOf = (option: 'rounds' | 'seconds' | 'events'): number => {
  const number = Number(values[option])
  return Number.isSafeInteger(number) && number > 0
    ? number
    : refuse(`--${option} must be a positive whole number, but is "${values[option]}"`)
}
const options: BenchOptions = {
  rounds: numberOf('rounds'),
  seconds: numberOf('seconds'),
  events: numberOf('events'),
  long: values.long,
  bareUlid: values['bare-ulid'],
  report: (line) => process.stderr.write(`${line}\n`),
}
const chosen = (values.only?.split(',') ?? Object.keys(scenarios)).map((name) => {
  const run = scenarios[name]
  return run === undefined
    ? refuse(`there is no "${name}"; there are ${Object.keys(scenarios).join(', ')}`)
    : { name, run }
})

// When this process exits, it also ends the processes that a benchmark started.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1))
await takeTurn(options.report)
const rows: Row[] = []
for (const { name, run } of chosen) {
  options.report(`\n${name}`)
  rows.push(...(await run(options)))
}
process.stdout.write(values.json ? `${JSON.stringify(rows, null, 2)}\n` : `\n${tableOf(rows)}\n`)
