import { ulid } from 'ulid'
import { CommandRefused } from '../ledger/commit.ts'

/**
 * What takes longer than a page may: it goes on in this process, says how far it is, and what came of it is kept for a while.
 * What it writes is in the event log, so that nothing is lost with the process but the wait.
 */

type Work<Result> = {
  readonly id: string
  readonly title: string
  /** Who started it, as what, and alone may look at it. */
  readonly owner: string
  readonly startedAtMs: number
  progress: string
  outcome:
    | null
    | { readonly kind: 'done'; readonly result: Result }
    | { readonly kind: 'failed'; readonly error: unknown }
}

type Asked<Result> = {
  /** What it is: while it goes on, and for a while after, asking again is the same work. */
  readonly key: string
  readonly title: string
  readonly owner: string
  readonly run: (progress: (text: string) => void) => Promise<Result>
}

const runningMax = 4
const keptMax = 200
const keptMs = 10 * 60_000

type Kept = Work<unknown> & { readonly key: string; readonly ended: Promise<void>; endedAtMs: number | null }

export type Works = ReturnType<typeof createWorks>

const begun = <Result>({ key, title, owner, run }: Asked<Result>, nowMs: () => number): Kept => {
  const work: Kept = {
    ...{ id: ulid(), key, title, owner, startedAtMs: nowMs() },
    ...{ progress: '', outcome: null, endedAtMs: null },
    ended: Promise.resolve()
      .then(() => run((text) => Object.assign(work, { progress: text })))
      .then(
        (result) => Object.assign(work, { outcome: { kind: 'done', result } }),
        (error: unknown) => Object.assign(work, { outcome: { kind: 'failed', error } }),
      )
      .then(() => Object.assign(work, { endedAtMs: nowMs() }))
      .then(() => undefined),
  }
  return work
}

export const createWorks = (nowMs: () => number = Date.now) => {
  const kept = new Map<string, Kept>()

  const sweep = (): void => {
    const ended = [...kept.values()].filter(({ endedAtMs }) => endedAtMs !== null)
    for (const [i, work] of ended.entries())
      if (i < ended.length - keptMax || nowMs() - (work.endedAtMs ?? 0) > keptMs) kept.delete(work.id)
  }

  /** Throws `CommandRefused` where too much goes on already. */
  const start = <Result>(
    asked: Asked<Result>,
    // What was asked for by a form, which is taken once, is begun anew when it has ended.
    { again = false }: { again?: boolean } = {},
  ): Kept => {
    sweep()
    const { key, owner } = asked
    const own = [...kept.values()].find(
      (one) => one.key === key && one.owner === owner && !(again && one.outcome !== null),
    )
    if (own !== undefined) return own
    const running = [...kept.values()].filter(({ outcome }) => outcome === null).length
    if (running >= runningMax)
      throw new CommandRefused(
        'so much is being worked out at the moment that no more is begun; try again in a minute',
      )
    const work = begun(asked, nowMs)
    kept.set(work.id, work)
    return work
  }

  return {
    start,
    /** The work when it has ended, or as it is after `waitMs`. Throws what it failed with. */
    soon: async <Result>(
      asked: Asked<Result>,
      waitMs: number,
    ): Promise<{ result: Result } | { work: Work<unknown> }> => {
      const work = start(asked)
      let timer: NodeJS.Timeout | undefined
      await Promise.race([
        work.ended,
        new Promise<void>((resolve) => {
          timer = setTimeout(resolve, waitMs)
        }),
      ])
      clearTimeout(timer)
      const { outcome } = work
      if (outcome === null) return { work }
      kept.delete(work.id)
      if (outcome.kind === 'failed') throw outcome.error
      return { result: outcome.result as Result }
    },
    find: (id: string, owner: string): Work<unknown> | undefined => {
      sweep()
      const work = kept.get(id)
      return work?.owner === owner ? work : undefined
    },
  }
}
