import { parseArgs } from 'node:util'
import { figure } from './row.ts'

/**
 * How far an installation goes, calculated from what `npm run bench -- --only owner-cost` measures. By itself:
 * `node test/bench/scaling-model.ts --here 150 --pass 110 --own 60 --append 1.2 --call 0.01 --cores 8`.
 *
 * It assumes that calls arrive evenly at all processes and organizations, that each process has a core of its own, that the
 * event log is on a machine of its own, that a process writes whole batches when it is busy, and that nothing else limits:
 * no network, no disk that fills, no rate limit. It knows no latency: a figure is where a resource is busy all the time, and
 * two thirds of it are a prudent load. The projector is one process, and is not in it.
 */

export type Costs = {
  /** Processor time of a call in the one process that takes and writes it. */
  readonly hereUs: number
  /** Of a call that is passed on: where it arrives, and where it is written. */
  readonly passUs: number
  readonly ownUs: number
  /** An append holds the head of the log so long for one call, and so much longer for each further one. */
  readonly appendMs: number
  readonly callMs: number
  /** Appends that an EventStoreDB takes in a second: it has no group commit over streams from its clients' side. */
  readonly leaderAppendsPerSecond: number
}

/** What the vendor states for its production clusters, reads and writes together: an upper bound, and not measured here. */
const leaderAppendsDefault = 20_000
/** As in src/ledger/options.ts and src/event-log/postgres/appender.ts. */
const callsPerAppendMax = 256
const callsPerCommitMax = 2_048

export const costsOf = (measured: Omit<Costs, 'leaderAppendsPerSecond'>): Costs => ({
  ...measured,
  leaderAppendsPerSecond: leaderAppendsDefault,
})

type Installation = { readonly organizations: number; readonly machines: number; readonly cores: number }

export type Reach = {
  /** Calls per second at which each of these is busy all the time. */
  readonly processes: number
  readonly owners: number
  readonly head: number
  readonly leader: number
}

export const reachOf = (
  { hereUs, passUs, ownUs, appendMs, callMs, leaderAppendsPerSecond }: Costs,
  { organizations, machines, cores }: Installation,
): Reach => {
  const count = machines * cores
  // By chance a call arrives where it is written.
  const passedShare = 1 - 1 / count
  const callUs = hereUs * (1 - passedShare) + (passUs + ownUs) * passedShare
  const processes = (count * 1e6) / callUs
  // An owner writes, and takes its share of the calls besides. Organizations beyond the processes share them.
  const owning = Math.min(organizations, count)
  const ownerUs = (callUs - ownUs * passedShare) / count + (ownUs * passedShare) / owning
  const owners = 1e6 / ownerUs
  // A process has one commit under way, of at most so many calls: of one organization no more than an append of it.
  const callsPerCommit = Math.min(callsPerCommitMax, callsPerAppendMax * Math.max(1, organizations / count))
  const head = (callsPerCommit * 1_000) / (appendMs + (callsPerCommit - 1) * callMs)
  const rate = Math.min(processes, owners)
  // Each organization's batch is what arrived while the one before was written: at least one call.
  const callsPerAppend = Math.min(callsPerAppendMax, Math.max(1, (rate / organizations) * (appendMs / 1_000)))
  return { processes, owners, head, leader: leaderAppendsPerSecond * callsPerAppend }
}

const installations: readonly Installation[] = [
  { organizations: 1, machines: 1, cores: 1 },
  { organizations: 1, machines: 1, cores: 4 },
  { organizations: 1, machines: 2, cores: 8 },
  { organizations: 10, machines: 1, cores: 4 },
  { organizations: 10, machines: 2, cores: 8 },
  { organizations: 2_000, machines: 1, cores: 4 },
  { organizations: 2_000, machines: 2, cores: 8 },
  { organizations: 2_000, machines: 8, cores: 8 },
]

/** A line for each installation: which resource ends it on either log, and where. */
export const tableOfScale = (costs: Costs): string => {
  const head = [
    'organizations',
    'processes',
    'processor time',
    'owners',
    'head row',
    'leader',
    'on PostgreSQL',
    'on EventStoreDB',
  ]
  const cells = installations.map((installation) => {
    const { organizations, machines, cores } = installation
    const { processes, owners, head, leader } = reachOf(costs, installation)
    const least = (log: Record<string, number>): string => {
      const [name = '', rate = 0] = Object.entries({ processes, owners, ...log }).reduce((a, b) =>
        b[1] < a[1] ? b : a,
      )
      return `${figure(rate)} (${name})`
    }
    return [
      figure(organizations),
      `${machines} x ${cores}`,
      ...[processes, owners, head, leader].map(figure),
      least({ 'head row': head }),
      least({ leader }),
    ]
  })
  const widths = head.map((name, i) => Math.max(name.length, ...cells.map((row) => (row[i] ?? '').length)))
  return [head, ...cells]
    .map((row) => row.map((cell, i) => cell.padStart(widths[i] ?? 0)).join('  '))
    .join('\n')
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      here: { type: 'string' },
      pass: { type: 'string' },
      own: { type: 'string' },
      append: { type: 'string' },
      call: { type: 'string' },
      leader: { type: 'string', default: String(leaderAppendsDefault) },
    },
  })
  const costs: Costs = {
    hereUs: Number(values.here),
    passUs: Number(values.pass),
    ownUs: Number(values.own),
    appendMs: Number(values.append),
    callMs: Number(values.call),
    leaderAppendsPerSecond: Number(values.leader),
  }
  process.stdout.write(`Calls per second at which each is busy all the time\n\n${tableOfScale(costs)}\n`)
}
