import type { OutageLogger } from '../event-log/outage.ts'
import type { PassedByFor } from './owners.ts'
import type { ProcessId } from './peer.ts'

/** Processes that are left out for a while, because they did not answer in time. */
export type Passing = {
  has(id: ProcessId): boolean
  add(id: ProcessId, why: PassedByFor): void
  /** Forgets all that are neither among these nor left out now. */
  keep(known: { has(id: ProcessId): boolean }): void
  /** Runs nothing from now on. */
  end(): void
}

export type PassingLimits = {
  readonly passByMs: number
  /** Each time it happens again doubles it up to this. */
  readonly passByMsMax: number
  /** One that was not passed by for so long is as good as any. */
  readonly passByForgottenMs: number
}

export const passingLimits: PassingLimits = {
  passByMs: 2_000,
  passByMsMax: 30_000,
  passByForgottenMs: 60_000,
}

const said = {
  silent: 'does not answer in time',
  'not understood': 'answers what cannot be understood',
} as const satisfies Record<PassedByFor, string>

/** `over`: someone counts again. */
export const createPassing = (
  logger: OutageLogger,
  over: () => void,
  { passByMs, passByMsMax, passByForgottenMs }: PassingLimits,
): Passing => {
  const passed = new Map<ProcessId, { readonly untilMs: number; readonly forMs: number }>()
  const timers = new Set<NodeJS.Timeout>()
  const has = (id: ProcessId): boolean => performance.now() < (passed.get(id)?.untilMs ?? 0)
  return {
    has,
    add: (id, why) => {
      // Whatever else was under way to it is late as well, and tells nothing new.
      if (has(id)) return
      const nowMs = performance.now()
      const before = passed.get(id)
      const again = before !== undefined && nowMs - before.untilMs < passByForgottenMs
      const forMs = again ? Math.min(before.forMs * 2, passByMsMax) : passByMs
      passed.set(id, { untilMs: nowMs + forMs, forMs })
      logger.warn(
        { process: id, seconds: forMs / 1_000 },
        `peers: a process ${said[why]} and is passed by for a while`,
      )
      // One millisecond more: a timer may come early, and then it would not be over.
      const timer = setTimeout(() => {
        timers.delete(timer)
        over()
      }, forMs + 1).unref()
      timers.add(timer)
    },
    keep: (known) => {
      for (const id of passed.keys()) if (!known.has(id) && !has(id)) passed.delete(id)
    },
    end: () => {
      for (const timer of timers) clearTimeout(timer)
    },
  }
}
