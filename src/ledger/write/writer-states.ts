import type { Account } from '../account.ts'
import type { Batch } from './batch.ts'

/**
 * The states of one ledger's writer. In every state except `unloaded` and `idle`, exactly one operation is in progress. The state
 * changes only when the operation ends; new commands wait in the queue. A state contains the account only if the account is
 * reliable.
 */
export type WriterState =
  /** The account is unknown: it was not needed yet, or an operation failed. */
  | { readonly kind: 'unloaded' }
  | { readonly kind: 'loading' }
  | { readonly kind: 'idle'; readonly account: Account }
  /** Commands for one batch are being collected, until the end of this turn of the event loop or of the pause for other processes. */
  | { readonly kind: 'gathering'; readonly account: Account }
  /** The ledger is being searched for commands that it may already contain. */
  | { readonly kind: 'looking'; readonly account: Account }
  /** The batch is being appended. The append is repeated until its outcome is known or the time limit is reached. */
  | { readonly kind: 'writing'; readonly account: Account; readonly batch: Batch }
  /** Another process appended first. The events of that process are being folded, and the commands of the batch are back in the queue. */
  | { readonly kind: 'catching_up'; readonly account: Account }
  /**
   * The outcome of the append is unknown. Until it is decided, the batch's place is read, and is fenced if it is empty.
   * There is no time limit, because the event at the place decides whether the batch's calls are charged.
   */
  | { readonly kind: 'deciding'; readonly account: Account; readonly batch: Batch }

export type StateKind = WriterState['kind']

export type WriterEvent =
  | 'submit'
  /** Someone needs the account. */
  | 'ask'
  | 'late'
  | 'turn_over'
  | 'loaded'
  | 'looked'
  | 'written'
  /** Another event is in the batch's place, so the batch can never be written. */
  | 'conflict'
  | 'caught_up'
  /** The log did not confirm the append, and the time for repeating it is over. */
  | 'unknown'
  /** The operation failed, and nothing was written. */
  | 'failed'

/**
 * `onwards` means `looking`, `writing` or `idle`, depending on the queue. `restart` means `loading` if a caller waits, and
 * otherwise `unloaded`.
 */
export type Next = StateKind | 'onwards' | 'restart'

/** Requests and late callers never change what a writer with work is doing. */
const stays = (state: StateKind) => ({ submit: state, ask: state, late: state })

/** The next state, by state and event. An event without an entry cannot happen in that state. */
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
