import type { Account } from '../account.ts'
import type { Batch } from './batch.ts'

/**
 * The states of a ledger's writer. In every state except `unloaded` and `idle`, exactly one operation is in progress. The state changes
 * only when that operation ends, and new commands wait in the queue. A state contains the account only if it is reliable.
 */
export type WriterState =
  /** The account is unknown, because it was not needed yet or an operation failed. */
  | { readonly kind: 'unloaded' }
  | { readonly kind: 'loading' }
  | { readonly kind: 'idle'; readonly account: Account }
  /** Commands for a batch are being collected, until the end of this turn of the event loop or of a pause for other processes. */
  | { readonly kind: 'gathering'; readonly account: Account }
  /** The ledger is being searched for queued commands that it could already contain. */
  | { readonly kind: 'looking'; readonly account: Account }
  /** The batch is being appended. The append is repeated until its outcome is known or the time limit is reached. */
  | { readonly kind: 'writing'; readonly account: Account; readonly batch: Batch }
  /** Another process has appended first. Its events are being folded, and the commands of the batch are back in the queue. */
  | { readonly kind: 'catching_up'; readonly account: Account }
  /**
   * The outcome of the append is unknown. Until it is known, the batch's place is read, and fenced if it is empty. There is no time limit,
   * because the event at that place determines whether the batch's calls are charged.
   */
  | { readonly kind: 'deciding'; readonly account: Account; readonly batch: Batch }

export type StateKind = WriterState['kind']

export type WriterEvent =
  | 'submit'
  /** A caller needs the account. */
  | 'ask'
  | 'late'
  | 'turn_over'
  | 'loaded'
  | 'looked'
  | 'written'
  /** Another event is in the batch's place, so the batch can never be written. */
  | 'conflict'
  | 'caught_up'
  /** The log did not confirm the append within the time for repeating it. */
  | 'unknown'
  /** The operation failed, and nothing was written. */
  | 'failed'

/**
 * `onwards`: `looking`, `writing` or `idle`, depending on the queue. `restart`: `loading` if a caller is waiting, and otherwise
 * `unloaded`.
 */
export type Next = StateKind | 'onwards' | 'restart'

/** Requests and overdue callers never change the state of a writer that has work. */
const stays = (state: StateKind) => ({ submit: state, ask: state, late: state })

/** The next state, by state and event. An event that is missing in a state cannot happen in it. */
export const writerTable: Readonly<Record<StateKind, Readonly<Partial<Record<WriterEvent, Next>>>>> = {
  unloaded: { submit: 'loading', ask: 'loading', late: 'unloaded' },
  loading: { ...stays('loading'), loaded: 'onwards', failed: 'restart' },
  idle: { submit: 'gathering', ask: 'idle', late: 'idle' },
  gathering: { ...stays('gathering'), turn_over: 'onwards' },
  looking: { ...stays('looking'), looked: 'onwards', failed: 'restart' },
  writing: {
    ...stays('writing'),
    written: 'onwards',
    conflict: 'catching_up',
    unknown: 'deciding',
    failed: 'restart',
  },
  catching_up: { ...stays('catching_up'), caught_up: 'onwards', failed: 'restart' },
  deciding: { ...stays('deciding'), written: 'onwards', conflict: 'catching_up', failed: 'restart' },
}

/** The next state. Throws if the event cannot happen in the state, because the account could then be wrong. */
export const nextOf = (state: StateKind, event: WriterEvent): Next => {
  const next = writerTable[state][event]
  if (next === undefined) throw new Error(`ledger: a writer that is ${state} received "${event}"`)
  return next
}

export const isAtRest = (state: StateKind): boolean => state === 'unloaded' || state === 'idle'
