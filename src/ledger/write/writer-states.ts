import type { Account } from '../account.ts'
import type { Batch } from './batch.ts'

/**
 * Pure: the states of one ledger's writer, and the transitions between them.
 *
 * A writer does one thing at a time. `unloaded` and `idle` are at rest. In every other state exactly one piece of work is
 * under way, and only its end leaves the state: what arrives meanwhile waits in the queue. The account is part of the
 * state, so that there is none where it cannot be relied on.
 */
export type WriterState =
  /** The account is not known: nothing was asked yet, or something failed. */
  | { readonly kind: 'unloaded' }
  /** The snapshot and the stream after it are being read. */
  | { readonly kind: 'loading' }
  | { readonly kind: 'idle'; readonly account: Account }
  /**
   * What arrives becomes one batch when the turn of the event loop ends, or the pause that leaves the ledger to other
   * processes.
   */
  | { readonly kind: 'gathering'; readonly account: Account }
  /** The ledger is being read for commands that may be in it already. */
  | { readonly kind: 'looking'; readonly account: Account }
  /** The batch is being appended, by identical appends, until the outcome is known or the time for that is over. */
  | { readonly kind: 'writing'; readonly account: Account; readonly batch: Batch }
  /** Another process appended: its events are being folded in. The batch is in the queue again. */
  | { readonly kind: 'catching_up'; readonly account: Account }
  /**
   * The outcome of the append is unknown. Until it is decided, the batch's place is read, and is fenced if it is empty. No
   * time limit ends this state: the event at the place decides whether the calls of the batch are charged.
   */
  | { readonly kind: 'deciding'; readonly account: Account; readonly batch: Batch }

export type StateKind = WriterState['kind']

export type WriterEvent =
  /** A command arrived. */
  | 'submit'
  /** The account is asked for. */
  | 'ask'
  /** Callers have waited too long. */
  | 'late'
  | 'turn_over'
  | 'loaded'
  | 'looked'
  | 'written'
  /** Something else is at the batch's place: the batch can never be written. */
  | 'conflict'
  | 'caught_up'
  /** The log did not say whether it took the append, and the time for sending it again is over. */
  | 'unknown'
  /** The work under way failed, and certainly nothing was written. */
  | 'failed'

/** `onwards`: to `looking`, `writing` or `idle`, as the queue demands. `restart`: to `loading` if anyone waits, else `unloaded`. */
export type Next = StateKind | 'onwards' | 'restart'

/** State by event. An event that is not in a row cannot happen in that state. */
export const writerTable: Readonly<Record<StateKind, Readonly<Partial<Record<WriterEvent, Next>>>>> = {
  unloaded: { submit: 'loading', ask: 'loading', late: 'unloaded' },
  loading: {
    submit: 'loading',
    ask: 'loading',
    late: 'loading',
    loaded: 'onwards',
    failed: 'restart',
  },
  idle: { submit: 'gathering', ask: 'idle', late: 'idle' },
  gathering: {
    submit: 'gathering',
    ask: 'gathering',
    late: 'gathering',
    turn_over: 'onwards',
  },
  looking: {
    submit: 'looking',
    ask: 'looking',
    late: 'looking',
    looked: 'onwards',
    failed: 'restart',
  },
  writing: {
    submit: 'writing',
    ask: 'writing',
    late: 'writing',
    written: 'onwards',
    conflict: 'catching_up',
    unknown: 'deciding',
    failed: 'restart',
  },
  catching_up: {
    submit: 'catching_up',
    ask: 'catching_up',
    late: 'catching_up',
    caught_up: 'onwards',
    failed: 'restart',
  },
  deciding: {
    submit: 'deciding',
    ask: 'deciding',
    late: 'deciding',
    written: 'onwards',
    conflict: 'catching_up',
    failed: 'restart',
  },
}

/** Where an event leads. Throws for one that cannot happen in the state: continuing would write on a wrong account. */
export const nextOf = (state: StateKind, event: WriterEvent): Next => {
  const next = writerTable[state][event]
  if (next === undefined) throw new Error(`ledger: a writer that is ${state} met "${event}"`)
  return next
}

export const isAtRest = (state: StateKind): boolean => state === 'unloaded' || state === 'idle'
