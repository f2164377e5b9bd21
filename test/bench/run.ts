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

/**
 * Prints ratios measured within one run, because absolute figures depend on the machine and its load. Usage: `npm run bench [--
 * --only call,append --rounds 5 --seconds 5 --events 1000000 --long --json]`. `node --cpu-prof test/bench/run.ts` shows the time
 * spent in this process.
 */

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

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '5' },
    events: { type: 'string', default: '1000000' },
    long: { type: 'boolean', default: false },
    'bare-ulid': { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
})
const options: BenchOptions = {
  rounds: Number(values.rounds),
  seconds: Number(values.seconds),
  events: Number(values.events),
  long: values.long,
  bareUlid: values['bare-ulid'],
  report: (line) => process.stderr.write(`${line}\n`),
}
const named = (name: string): ((options: BenchOptions) => Promise<Row[]>) => {
  const scenario = scenarios[name]
  if (scenario === undefined)
    throw new Error(`there is no "${name}"; there are ${Object.keys(scenarios).join(', ')}`)
  return scenario
}

// When this process exits, it also ends the processes that a benchmark started.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1))
await takeTurn(options.report)
const rows: Row[] = []
for (const name of values.only?.split(',') ?? Object.keys(scenarios)) {
  options.report(`\n${name}`)
  rows.push(...(await named(name)(options)))
}
process.stdout.write(values.json ? `${JSON.stringify(rows, null, 2)}\n` : `\n${tableOf(rows)}\n`)
