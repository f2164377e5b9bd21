import type { Finding } from '../administration/checks/check.ts'
import { within } from '../concurrency/deadline.ts'
import { remembered } from '../concurrency/remembered.ts'

/** What "doctor" looks at, for pages: one look at a time in this process, and not again for some seconds. */

export type Examined = {
  readonly startedAtMs: number
  readonly tookMs: number
  readonly findings: readonly Finding[]
}

export type Examination = {
  /** Begins a look, or joins the one under way; null where it takes longer than a page waits. It goes on, and is asked for again. */
  look(): Promise<Examined | null>
}

/** Every question of it has a deadline of its own; these are for all of them together. */
const waitMaxMs = 15_000
const keptMs = 15_000

export const createExamination = (
  examine: () => Promise<readonly Finding[]>,
  { nowMs = Date.now, waitMs = waitMaxMs }: { nowMs?: () => number; waitMs?: number } = {},
): Examination => {
  const begin = async (): Promise<Examined> => {
    const startedAtMs = nowMs()
    const findings = await examine()
    return { startedAtMs, tookMs: nowMs() - startedAtMs, findings }
  }
  const examined = remembered(begin, { keptMs, nowMs })
  return { look: () => within(examined(), { waitMs }, () => null) }
}
