import type { Held } from './held-sessions.ts'
import type { LaneAnswer, Question } from './lane-answer.ts'

/** A caller who waits for a session. */
export type Waiter = {
  readonly question: Question
  /** Only a session that was not used before: the last one was, and broke. */
  readonly fresh: boolean
  readonly settle: (given: Given) => void
}

export type Given =
  /** `turn` is 1 for the first transaction of a session. */
  | { readonly kind: 'session'; readonly held: Held; readonly turn: number }
  | Exclude<LaneAnswer, { kind: 'deadline' }>

/** The callers who wait for a session at one address of a mail server, the next one first. */
export class Waiters {
  line: Waiter[] = []

  /** Resolves with what the waiter is given, or with `late()` when the caller's time is over. */
  join<Late>(
    question: Question,
    { fresh, signal, late }: { fresh: boolean; signal: AbortSignal; late: () => Late },
  ): Promise<Given | Late> {
    return new Promise((resolve) => {
      const leave = (): void => {
        this.line = this.line.filter((other) => other !== waiter)
        resolve(late())
      }
      const waiter: Waiter = {
        question,
        fresh,
        settle: (given) => {
          signal.removeEventListener('abort', leave)
          resolve(given)
        },
      }
      signal.addEventListener('abort', leave, { once: true })
      if (question.urgent || fresh) this.line.unshift(waiter)
      else this.line.push(waiter)
    })
  }
}
