/**
 * A double of the connection between processes: what one asks arrives at the other as JSON would, and what happens to each
 * message on its way can be said. It proves what stands on the port (`src/peers/peer.ts`), never a transport.
 */
import type { AnswerPeer, Asker, Peer } from '../../src/peers/peer.ts'

/** How often a message arrives, and how many milliseconds later each time. An empty list: it is lost. */
export type Journey = readonly number[]

export type PeerDouble = Peer & {
  /** Ends the connection: nothing under way arrives any more, and what was asked is heard as null. */
  cut(): void
  /** Every question, as it was sent. */
  readonly asked: readonly unknown[]
}

type DoubleOptions = {
  readonly id: string
  readonly answer: AnswerPeer
  /** Of each message in either direction. Default: it arrives once, at once. */
  readonly journey?: (direction: 'question' | 'answer') => Journey
  /** Waits, on the clock of the test. */
  readonly later: (ms: number, run: () => void) => void
}

const asJson = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

export const createPeerDouble = ({ id, answer, journey = () => [0], later }: DoubleOptions): PeerDouble => {
  const asked: unknown[] = []
  const open = new Set<(answer: unknown) => void>()
  let askerGone: (() => void)[] = []
  let connection = 0
  let asker: Asker = askerOf()

  function askerOf(): Asker {
    return { id: `asker-of-${id}`, onGone: (run) => void askerGone.push(run) }
  }

  return {
    id,
    asked,
    ask: (question, heard) => {
      const own = connection
      const from = asker
      const text = asJson(question)
      asked.push(text)
      let hear: ((answer: unknown) => void) | undefined = heard
      const once = (told: unknown): void => {
        open.delete(once)
        hear?.(told)
        hear = undefined
      }
      open.add(once)
      for (const ms of journey('question'))
        later(ms, () => {
          if (own !== connection) return
          answer(asJson(text), from, (told) => {
            for (const back of journey('answer'))
              later(back, () => {
                if (own === connection) once(asJson(told))
              })
          })
        })
      return true
    },
    cut: () => {
      connection++
      const gone = askerGone
      askerGone = []
      asker = askerOf()
      for (const run of gone) run()
      for (const once of [...open]) once(null)
    },
  }
}
