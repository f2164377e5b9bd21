/**
 * The processes of one installation as each other's peers. They write ledgers together: who writes one affects cost,
 * never meaning, so everything here is a hint, and nothing here knows what a ledger is.
 */

/** One run of one process: a ULID. */
export type ProcessId = string

/** Another process that this one is connected to. */
export type Peer = {
  readonly id: ProcessId
  /**
   * Sends a question, together with all others of this turn of the event loop and in the order they were asked. `heard`
   * is called exactly once, however late: with the answer, or with null where the connection ended first. Questions and
   * answers are any JSON values but null.
   *
   * False: the question was not sent and never will be, and `heard` is not called.
   */
  ask(question: unknown, heard: (answer: unknown) => void): boolean
}

/** Another process that is connected to this one. */
export type Asker = {
  readonly id: ProcessId
  /** Called once, when its connection ends. At once where it has ended already. */
  onGone(run: () => void): void
}

/** Answers a peer's question. `answer` may be called later, at most once; without an effect where the asker is gone. */
export type AnswerPeer = (question: unknown, from: Asker, answer: (answer: unknown) => void) => void
