import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { RecordedEvent } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { labelMax } from '../../events/text.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import type { KeyState } from '../../keys/key-state.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { firstRevisionFor } from '../../ledger/explain/recorded-calls.ts'
import { InputFault } from '../input.ts'
import {
  CorrectedMeanwhile,
  type Corrections,
  correctionsAfter,
  costOfFound,
  type FoundCall,
  refundable,
  refundFound,
} from './refunds.ts'

/**
 * Refunds many calls of one API key. Each call has its own reference, which consists of the common reference and the request id, so
 * a repeated command skips the calls that were already refunded and refunds the rest.
 */

type Sources = Pick<Foundation, 'eventLog' | 'ledger' | 'pool'>

/** A choice of calls; null if no calls are chosen. `to` is exclusive; null means up to the last call. */
export type CallChoice =
  | { readonly kind: 'between'; readonly from: string; readonly to: string | null }
  | { readonly kind: 'listed'; readonly requestIds: readonly string[] }
  | null

type CallsOfKey = Pick<KeyState, 'organizationId' | 'keyId' | 'createdAt'> & { readonly choice: CallChoice }

/** The maximum number of charged calls that one command refunds. */
const refundsMax = 10_000
/** The maximum number of calls that can be chosen, including free ones, because their ids are kept in memory. */
const callsMax = 500_000
/** The maximum number of request ids in one list. */
export const listedMax = 1_000
const requestIdLength = 26
/** The reference of one call also contains a slash and its request id. */
const referenceMax = labelMax - requestIdLength - 1

/** Throws `InputFault` if the reference leaves no room for a request id. */
export const commonReferenceOf = (reference: string): string => {
  if (reference.length <= referenceMax) return reference
  throw new InputFault('reference', `at most ${referenceMax} characters; it has ${reference.length}`)
}

export type ChosenCalls = {
  readonly keyId: string
  /** Calls with a cost, by their request ids. */
  readonly charged: ReadonlyMap<string, FoundCall>
  readonly free: number
  /** Listed request ids that belong to no call of this key. */
  readonly unknown: readonly string[]
  readonly corrections: Corrections
}

/** Finds the chosen calls in the ledger. Throws `InputFault` if there are too many. */
export const chooseCalls = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { organizationId, keyId, createdAt, choice }: CallsOfKey,
  onProgress: (line: string, figures?: object) => void,
): Promise<ChosenCalls> => {
  /** By request id; null while no charge has been read. */
  const calls = new Map<string, FoundCall | null>()
  const listed = new Set(choice?.kind === 'listed' ? choice.requestIds : [])
  const wanted = (requestId: string, at: string): boolean => {
    if (choice?.kind === 'listed') return listed.has(requestId)
    const atMs = Date.parse(at)
    return (
      choice !== null &&
      atMs >= Date.parse(choice.from) &&
      (choice.to === null || atMs < Date.parse(choice.to))
    )
  }
  let charges = 0
  let read = 0
  let last: { readonly requestId: string; readonly recorded: RecordedEvent } | null = null
  const onRead = (recorded: RecordedEvent): void => {
    if (++read % 1_000 === 0) onProgress(`${read} events`, { events: read })
    if (recorded.type === 'KeyUsed') {
      last = null
      if (!recorded.data.includes(keyId)) return
      const { data, metadata, type } = decodeEvent(recorded)
      const requestId = metadata.request_id
      if (type !== 'KeyUsed' || data.key_id !== keyId || requestId === undefined) return
      if (!wanted(requestId, metadata.effective_at)) return
      last = { requestId, recorded }
      // A failed call can be recorded a second time; the record with a charge counts.
      if (!calls.has(requestId)) calls.set(requestId, null)
      if (calls.size > callsMax)
        throw new InputFault('from', `there are more than ${callsMax} calls: choose a shorter time range`)
    } else if (recorded.type === 'CreditCharged' && last !== null) {
      if (decodeEvent(recorded).metadata.causation_id !== last.recorded.id) return
      calls.set(last.requestId, { organizationId, recorded: last.recorded, charge: recorded })
      if (++charges > refundsMax)
        throw new InputFault(
          'from',
          `more than ${refundsMax} calls cost something: choose a shorter time range`,
        )
    }
  }
  const fromMs = Math.max(
    Date.parse(createdAt),
    choice?.kind === 'between' ? Date.parse(choice.from) : Number.NEGATIVE_INFINITY,
  )
  const first = choice === null ? null : await firstRevisionFor(eventLog, organizationId, fromMs)
  const corrections = correctionsAfter({ eventLog }, organizationId, { after: (first ?? 0) - 1, onRead })
  if (first !== null) await corrections.read()
  const charged = new Map(
    [...calls].flatMap(([requestId, call]) => (call === null ? [] : [[requestId, call]])),
  )
  return {
    keyId,
    charged,
    corrections,
    free: calls.size - charged.size,
    unknown: [...listed].filter((requestId) => !calls.has(requestId)),
  }
}

/**
 * `left` contains the calls that cannot be refunded, each with the reason. `already` counts calls refunded earlier under the same
 * reference.
 */
export type Refunds = {
  readonly calls: number
  readonly free: number
  readonly refunds: number
  readonly credits: MicroCredits
  readonly already: number
  readonly left: readonly CallLeft[]
}
type CallLeft = { readonly requestId: string; readonly why: string }

/** Refunds one call. Returns the refunded amount; null if the call was already refunded under the same reference. */
type RefundOfOne = (call: {
  readonly requestId: string
  readonly reference: string
  readonly found: FoundCall
}) => Promise<MicroCredits | null>

const eachOf = async (
  { keyId, charged, free, unknown }: ChosenCalls,
  common: string,
  refundOne: RefundOfOne,
): Promise<Refunds> => {
  const left: CallLeft[] = unknown.map((requestId) => ({
    requestId,
    why: `key ${keyId} has no call ${requestId}`,
  }))
  let [refunds, already, credits] = [0, 0, 0n]
  for (const [requestId, found] of charged) {
    try {
      const amount = await refundOne({ requestId, found, reference: `${common}/${requestId}` })
      if (amount === null) already++
      else {
        refunds++
        credits += amount
      }
    } catch (error) {
      const cannot = error instanceof CommandRefused || error instanceof InputFault
      if (!cannot || error instanceof CorrectedMeanwhile) throw error
      left.push({ requestId, why: error.message })
    }
  }
  return { calls: charged.size + free, free, refunds, credits, already, left }
}

/** The result that `refundChosen` would return now. Writes nothing. */
export const planRefunds = (foundation: Sources, chosen: ChosenCalls, common: string): Promise<Refunds> =>
  eachOf(chosen, common, async ({ requestId, reference, found }) => {
    const sources = { call: found, corrections: chosen.corrections }
    const { cost, there } = await costOfFound(foundation, sources, { requestId, reference })
    return there === null ? refundable(cost, { requestId }).amount : null
  })

/**
 * Refunds the remaining cost of the chosen calls, and skips calls that cannot be refunded. After an error, a repetition with the
 * same reference refunds the other calls.
 */
export const refundChosen = (
  foundation: Sources,
  chosen: ChosenCalls,
  {
    reference: common,
    onProgress,
    ...asked
  }: {
    readonly reference: string
    readonly reason: string
    readonly actor: string
    readonly onProgress: (line: string, figures?: object) => void
  },
): Promise<Refunds> => {
  const { charged, corrections } = chosen
  let calls = 0
  return eachOf(chosen, common, async ({ requestId, reference, found }) => {
    calls++
    onProgress(`call ${calls} of ${charged.size}`, { calls, of: charged.size })
    const refunded = await refundFound(
      foundation,
      { call: found, corrections },
      { ...asked, requestId, reference, dryRun: false },
    )
    return refunded.already ? null : parseCredits(refunded.adjusted.amount)
  })
}
