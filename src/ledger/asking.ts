import type { Owners } from '../peers/owners.ts'
import type { Peer, ProcessId } from '../peers/peer.ts'
import { type PassedAnswer, readAnswer } from './passing.ts'

/** Questions to other processes, each waited for no longer than a caller can spare. */

const lookEveryMs = 50

export type Patience = {
  /** A process that was asked and is silent for so long is frozen, or gone: whatever it was asked is late. */
  readonly silenceMs: number
  /** One that answers others is slow: what it was asked may take so long. */
  readonly answerMs: number
}

type Listening = {
  /** The answer, also after `late`. */
  readonly heard: (answer: PassedAnswer) => void
  /** No answer came in time, or the connection ended: the question may or may not be acted on. Called once at most. */
  readonly late: () => void
  /** How long an answer may take, where that is less than the patience with every process. */
  readonly answerMs?: number
}

type Asked = Omit<Listening, 'answerMs'> & { readonly askedMs: number; readonly answerMs: number }

/** What one process was asked. */
type Questions = {
  /** In the order they were asked. */
  readonly waiting: Set<Asked>
  heardMs: number
  /** It was silent for too long when it was looked at last. Its answers may have been here already, unread. */
  suspected: boolean
}

type AskingOptions = {
  readonly monotonic: () => number
  readonly patience: Patience
  readonly passBy: Owners['passBy']
}

export const createAsking = ({ monotonic, patience, passBy }: AskingOptions) => {
  /** Of the processes that owe an answer. */
  const questions = new Map<ProcessId, Questions>()
  let looking: NodeJS.Timeout | undefined

  const questionsTo = (id: ProcessId): Questions => {
    const known = questions.get(id)
    if (known !== undefined) return known
    const fresh = { waiting: new Set<Asked>(), heardMs: monotonic(), suspected: false }
    questions.set(id, fresh)
    return fresh
  }
  const done = (id: ProcessId, asked: Asked): boolean => {
    const of = questions.get(id)
    if (of === undefined || !of.waiting.delete(asked)) return false
    if (of.waiting.size === 0) questions.delete(id)
    return true
  }
  const look = (id: ProcessId, of: Questions, nowMs: number): void => {
    const [oldest] = of.waiting
    if (oldest === undefined) return
    const silent = nowMs - Math.max(of.heardMs, oldest.askedMs) >= patience.silenceMs
    if (silent && of.suspected) passBy(id, 'silent')
    for (const asked of of.waiting) {
      if (!(silent && of.suspected) && nowMs - asked.askedMs < asked.answerMs) continue
      if (done(id, asked)) asked.late()
    }
    of.suspected = silent
  }
  const lookSoon = (): void => {
    looking ??= setTimeout(() => {
      looking = undefined
      const nowMs = monotonic()
      for (const [id, of] of [...questions]) look(id, of, nowMs)
      if (questions.size > 0) lookSoon()
    }, lookEveryMs)
    looking.unref()
  }

  return {
    /** False: it was not sent and never will be, and nothing is called. */
    ask: (peer: Peer, question: object, listening: Listening): boolean => {
      const { heard, late, answerMs = patience.answerMs } = listening
      const asked: Asked = { heard, late, answerMs, askedMs: monotonic() }
      // Before it is asked: a peer that is at hand may answer at once.
      questionsTo(peer.id).waiting.add(asked)
      const sent = peer.ask(question, (answer) => {
        const of = questions.get(peer.id)
        if (of !== undefined) of.heardMs = monotonic()
        const inTime = done(peer.id, asked)
        if (answer === null) {
          if (inTime) late()
          return
        }
        const told = readAnswer(answer)
        if (told === null) passBy(peer.id, 'not understood')
        heard(told ?? { is: 'unknown' })
      })
      if (sent) lookSoon()
      else done(peer.id, asked)
      return sent
    },
  }
}
