import type { Finding } from '../administration/doctor/finding.ts'
import { within } from '../concurrency/deadline.ts'

/** What "doctor" looks at, for pages: one look at a time in this process, and not again for some seconds. */

export type Examined = {
  readonly startedAtMs: number
  readonly tookMs: number
  readonly findings: readonly Finding[]
}

type Running = { readonly startedAtMs: number; readonly ended: Promise<Examined> }

export type Examination = {
  /** Begins a look, or joins the one under way; null where it takes longer than a page waits. It goes on, and is asked for again. */
  look(): Promise<Examined | null>
}

/** Every question of it has a deadline of its own; these are for all of them together. */
const waitMaxMs = 15_000
const keptMs = 15_000

/** `examine` never rejects, by what it says of itself; where it does, the next look begins anew. */
export const createExamination = (
  examine: () => Promise<readonly Finding[]>,
  { nowMs = Date.now, waitMs = waitMaxMs }: { nowMs?: () => number; waitMs?: number } = {},
): Examination => {
  let running: Running | null = null
  let last: Examined | null = null

  const begin = (): Running => {
    const startedAtMs = nowMs()
    const ended = examine()
      .then((findings): Examined => {
        last = { startedAtMs, tookMs: nowMs() - startedAtMs, findings }
        return last
      })
      .finally(() => {
        running = null
      })
    return { startedAtMs, ended }
  }

  return {
    look: async () => {
      if (last !== null && nowMs() - (last.startedAtMs + last.tookMs) < keptMs) return last
      running ??= begin()
      return within(running.ended, { waitMs }, () => null)
    },
  }
}
