import {
  type Check,
  type Finding,
  fine,
  type Level,
  type Seen,
  see,
  seeWithin,
  worstOf,
  wrong,
} from '../administration/checks/check.ts'
import { databaseCheck, rowChecks } from '../administration/checks/database.ts'
import { actsIn, eventLogCheck, type InLog, logChecks } from '../administration/checks/event-log.ts'
import { diskCheck } from '../administration/checks/host.ts'
import { createProjectionLags, type ProjectionLag } from '../administration/projections/projections.ts'
import type { Meters } from '../call/capability.ts'
import { within } from '../concurrency/deadline.ts'
import { remembered } from '../concurrency/remembered.ts'
import type { DiskWatch } from '../guard/disk-space.ts'
import type { Ledger } from '../ledger/write/ledger.ts'

/**
 * The checks of a running process, for load balancers, Prometheus and the dashboard. However often they are requested, a check runs at most
 * once a second and never twice at the same time, and no request waits longer than a second.
 */
const keptMs = 1_000
const lookMaxMs = 1_000
/** How long to wait for a check that timed out last time, so that a check that hangs does not delay every answer by a second. */
const lookAgainMaxMs = 100

type CheckStatus = 'ok' | 'degraded' | 'failed' | 'timed_out'
/** The additional members are shown only on hosts to which operators alone have access. */
type ReadyCheck = { readonly status: CheckStatus; readonly [member: string]: unknown }
type Readiness = {
  readonly ready: boolean
  readonly checks: Readonly<Record<string, ReadyCheck>>
}

export type Health = {
  /**
   * `showsRows`: this host shows read models, so it is not ready if they are far behind. Calls do not need read models.
   */
  readiness(options: { showsRows: boolean }): Promise<Readiness>
  /** Returns null if the event log or the database did not answer in time. */
  projectionLags(): Promise<readonly ProjectionLag[] | null>
  findings(): Promise<readonly Finding[]>
  /** Adds the gauges of all checks, and a gauge for the level of each check. */
  meter(meters: Meters): void
}

export type LiveModel = {
  readonly name: string
  /** Returns the reason why the model can be out of date, or null if it is current. */
  failure(): Error | null
  /** Returns the number of streams that contain an unreadable event. */
  doubtful(): number
}

export type HealthOptions = Pick<InLog, 'config' | 'eventLog' | 'pool' | 'rateLimitsShared'> & {
  readonly ledger: Pick<Ledger, 'failure'>
  readonly diskSpace: Pick<DiskWatch, 'seen'>
  readonly liveModels?: readonly LiveModel[]
  /** Present only in processes that seal data. */
  readonly epochKey?: { failure(): Error | null }
  /** Present only in processes that answer calls. */
  readonly clock?: { failure(): Error | null }
}

export function createHealth({ diskSpace, ...options }: HealthOptions): Health {
  const lags = remembered(createProjectionLags(options), { keptMs })
  const on: InLog & { readonly disk: Pick<DiskWatch, 'seen'> } = {
    ...options,
    where: null,
    acts: actsIn(options.eventLog),
    projectionLags: lags,
    thorough: false,
    disk: diskSpace,
  }
  const asked = <On>(checks: readonly Check<On>[], of: On, keepMs: number) =>
    checks.map((check) => {
      const seen = remembered(() => see(check, of), { keptMs: keepMs })
      let isLate = false
      const look = async (): Promise<Seen> => {
        const running = seen()
        void running.then(() => {
          isLate = false
        })
        const found = await seeWithin(check, running, isLate ? lookAgainMaxMs : lookMaxMs)
        isLate ||= found.failure === 'timed_out'
        return found
      }
      return { check, look }
    })
  const looks = [
    ...asked([eventLogCheck, databaseCheck, ...logChecks, ...rowChecks], on, keptMs),
    // These checks are not cached: they cost nothing, and a process that may not know of a revoked key must stop getting calls immediately.
    ...asked([diskCheck, ...processChecks(options)], on, 0),
  ]
  return {
    projectionLags: () => within(lags(), { waitMs: lookMaxMs }, () => null).catch(() => null),
    findings: async () =>
      (await Promise.all(looks.map(({ look }) => look()))).flatMap(({ findings }) => findings),
    readiness: async ({ showsRows }) => {
      const checks = await Promise.all(
        looks.flatMap(({ check: { readiness }, look }) =>
          readiness === undefined
            ? []
            : [
                look().then((seen) => {
                  const counts =
                    readiness.counts === 'always' ||
                    (readiness.counts === 'where rows are shown' && showsRows)
                  return [readiness.name, statusOf(seen, { counts, showsRows })] as const
                }),
              ],
        ),
      )
      const known = checks.flatMap(([name, check]) => (check === null ? [] : [[name, check] as const]))
      const ready = known.every(([, { status }]) => status === 'ok' || status === 'degraded')
      return { ready, checks: Object.fromEntries(known) }
    },
    meter: (meters) => {
      for (const { check, look } of looks)
        for (const [name, help] of Object.entries(check.gauges ?? {}))
          meters.gauge({ name, help, labels: check.labels ?? [] }, async () => {
            const { samples = {}, failure } = await look()
            if (failure !== null) throw new Error(`${check.name}: ${failure}`)
            return samples[name] ?? []
          })
      meters.gauge(
        { name: 'check_level', help: 'Result of a check: 0 ok, 1 warning, 2 fault', labels: ['check'] },
        () =>
          Promise.all(
            looks.map(async ({ check, look }) => ({
              labels: { check: check.name },
              value: levels.indexOf(worstOf((await look()).findings)),
            })),
          ),
      )
    },
  }
}

const levels: readonly Level[] = ['ok', 'warning', 'fault']
const statuses = { ok: 'ok', warning: 'degraded', fault: 'failed' } as const

/** Returns null if the check does not apply to this installation. */
function statusOf(
  { findings, failure, ready, details = {} }: Seen,
  { counts, showsRows }: { readonly counts: boolean; readonly showsRows: boolean },
): ReadyCheck | null {
  if (ready === null || findings.length === 0) return null
  const status = failure ?? statuses[ready ?? worstOf(findings)]
  const shown = counts || status === 'ok' ? status : 'degraded'
  const { halted_streams: streams } = details
  const counted = !showsRows && Array.isArray(streams) ? { halted_streams: streams.length } : {}
  const wrong = findings.filter(({ level }) => level !== 'ok')
  const found = wrong.map(({ says, remedy }) => (remedy === null ? says : `${says}. ${remedy}`))
  return { status: shown, ...details, ...counted, ...(status !== 'ok' && found.length > 0 && { found }) }
}

const rewrittenAdvice =
  'The event log was restored from an older copy, or a standby took over without its last events: follow "What do I do if the event log has been restored from an older copy?" in src/guides/backup.md, and restart every process.'

const processChecks = ({
  ledger,
  liveModels = [],
  epochKey,
  clock,
}: Pick<HealthOptions, 'ledger' | 'liveModels' | 'epochKey' | 'clock'>): readonly Check<unknown>[] => [
  {
    name: 'ledger',
    severity: 'fault',
    advice: 'Check the event log, and read the log of the process.',
    readiness: { name: 'ledger', counts: 'always' },
    look: () => {
      const failure = ledger.failure()
      if (failure === null) return fine('appends succeed')
      return wrong(
        `appends fail: ${failure.error.message}`,
        failure.kind === 'rewritten' ? { advice: rewrittenAdvice } : {},
      )
    },
  },
  ...(clock === undefined ? [] : [clockCheck(clock)]),
  ...[...(epochKey === undefined ? [] : [{ name: 'epoch_key', ...epochKey }]), ...liveModels].map(
    ({ name, failure }): Check<unknown> => ({
      name,
      severity: 'fault',
      advice: 'Calls that depend on it are refused. Read the log of the process.',
      readiness: { name, counts: 'always' },
      look: () => {
        const error = failure()
        return error === null ? fine('is current') : wrong(error.message)
      },
    }),
  ),
  {
    name: 'unreadable events',
    severity: 'fault',
    advice:
      '"projection parked" shows the event. Install the release that can read it, or revoke the key and issue a new one.',
    gauges: {
      doubtful_streams: 'Streams that contain an unreadable event; calls that depend on them are refused',
    },
    labels: ['model'],
    look: () => {
      const counts = liveModels.map(({ name, doubtful }) => ({ labels: { model: name }, value: doubtful() }))
      const some = counts.filter(({ value }) => value > 0)
      return {
        found:
          some.length === 0
            ? fine('none')
            : some.map(({ labels: { model }, value }) => wrong(`${model}: ${value} streams`)),
        samples: { doubtful_streams: counts },
      }
    },
  },
]

const clockCheck = ({ failure }: NonNullable<HealthOptions['clock']>): Check<unknown> => ({
  name: 'clock',
  severity: 'fault',
  advice: 'Let NTP set the clock on every host: timedatectl set-ntp true, or chrony.',
  readiness: { name: 'clock', counts: 'always' },
  look: () => {
    const error = failure()
    return error === null ? fine("agrees with the database's clock") : wrong(error.message)
  },
})
