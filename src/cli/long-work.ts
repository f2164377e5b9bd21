import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Answer, Context, Declared, Given } from '../administration/declare.ts'
import {
  answerOf,
  longWork,
  requestLongWork,
  takeBack,
  workerRuns,
} from '../administration/jobs/long-work.ts'

const pollMs = 250
/** The wait for the work to start. An idle process with the role `jobs` starts work immediately. */
const begunWithinMs = 3_000
/** A larger document is not sent through the queue. */
const givenCharactersMax = 1024 * 1024

/**
 * Requests long-running work as a job, so that the work continues when the terminal is closed. Calls `onBegun` with the job's id
 * when the work has started. Returns null if no process started the work; the caller must then do the work itself. Throws if the
 * work was refused or failed.
 */
export const answerFromWorker = async (
  { foundation, operator, logger, progress }: Context,
  { declared, given, onBegun }: { declared: Declared; given: Given; onBegun: (id: string) => void },
): Promise<Answer | null> => {
  const { pool } = foundation
  if (declared.anyEventLog?.(given) === true || JSON.stringify(given).length > givenCharactersMax) return null
  if (!(await workerRuns(pool))) return null
  const id = randomUUID()
  await requestLongWork(foundation, { id, declared, given, operator }, logger)
  let begun = false
  for (const requestedAtMs = performance.now(); ; ) {
    const work = await longWork(pool, id)
    if (work === null) throw new Error(`the queue no longer contains the job ${id}`)
    if (work.outcome !== null || work.error !== null) return answerOf(work)
    if (work.state === 'running' && !begun) {
      begun = true
      onBegun(id)
    }
    if (
      !begun &&
      performance.now() - requestedAtMs > begunWithinMs &&
      (await takeBack(foundation, id, logger))
    )
      return null
    if (work.progress !== null) progress(work.progress.line, work.progress.figures ?? undefined)
    await sleep(pollMs)
  }
}
