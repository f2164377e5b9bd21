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

/** The callers who wait for a session at one address of a mail server, the next one first. Parties take turns. */
export class Waiters {
  line: Waiter[] = []

  /** Whether one more of the party would be too many. One that has nobody in line is never too many. */
  full(waitingMax: number, party: string): boolean {
    return this.line.length >= waitingMax && this.line.some(({ question }) => question.party === party)
  }

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
      if (question.own || fresh) this.line.unshift(waiter)
      else this.line.splice(this.#turnOf(question.party), 0, waiter)
    })
  }

  /** Behind as many of each other party as there are of its own: parties take turns, however many wait for one of them. */
  #turnOf(party: string): number {
    const own = this.line.filter(({ question }) => question.party === party).length
    const before = new Map<string, number>()
    const index = this.line.findIndex(({ question }) => {
      const turn = before.get(question.party) ?? 0
      before.set(question.party, turn + 1)
      return turn > own
    })
    return index < 0 ? this.line.length : index
  }
}
