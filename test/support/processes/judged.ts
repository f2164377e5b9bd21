/** Compares the answers that callers received with the ledger. */
import { exportLedger } from '../../../src/administration/ledgers/ledgers.ts'
import { parseCredits } from '../../../src/billing/money.ts'
import { commandKeyOf } from '../../../src/call/key-lookup.ts'
import { decodeEvent, eventIdOf } from '../../../src/event-log/stored-event.ts'
import type { Foundation } from '../../../src/foundation/foundation.ts'
import type { Answer, MadeCall, Try } from './callers.ts'
import type { Window } from './places.ts'

type Charge = { readonly id: string; readonly amount: bigint; readonly requestId: string }

export type Read = {
  readonly organizationId: string
  readonly calls: ReadonlyMap<string, number>
  readonly chargesOfRequest: ReadonlyMap<string, readonly Charge[]>
  /** Charges by the event id of their call. */
  readonly chargesOfCall: ReadonlyMap<string, readonly Charge[]>
  readonly reversed: ReadonlySet<string>
  readonly grants: ReadonlyMap<string, number>
  readonly balance: bigint
  readonly faults: readonly string[]
}

export type Faults = Readonly<
  Record<'lost' | 'doubled' | 'overdrawn' | 'refusedButCharged' | 'unexplained', string[]>
>

export const readLedger = async (
  foundation: Pick<Foundation, 'eventLog'>,
  organizationId: string,
): Promise<Read> => {
  const calls = new Map<string, number>()
  const chargesOfRequest = new Map<string, Charge[]>()
  const chargesOfCall = new Map<string, Charge[]>()
  const reversed = new Set<string>()
  const grants = new Map<string, number>()
  const faults: string[] = []
  const ids = new Map<string, number>()
  let limit = 0n
  let balance = 0n
  const range = { by: 'revision', from: 0, to: null } as const
  for await (const page of exportLedger(foundation, { organizationId, range })) {
    for (const recorded of page) {
      const { type, data, metadata } = decodeEvent(recorded)
      const at = `${organizationId} revision ${recorded.revision}`
      const first = ids.get(recorded.id)
      if (first !== undefined)
        faults.push(
          `${at}: event ${recorded.id} of revision ${first} twice: ${recorded.data} ${recorded.metadata}`,
        )
      ids.set(recorded.id, recorded.revision)
      const requestId = metadata.request_id ?? ''
      if (type === 'OrganizationRegistered') limit = parseCredits(data.overdraft_limit)
      if (type === 'KeyUsed') calls.set(requestId, (calls.get(requestId) ?? 0) + 1)
      if (type === 'CreditGranted') {
        balance += parseCredits(data.amount)
        grants.set(data.grant_id, (grants.get(data.grant_id) ?? 0) + 1)
      }
      if (type === 'CreditCharged') {
        const charge = { id: data.charge_id, amount: parseCredits(data.amount), requestId }
        balance -= charge.amount
        add(chargesOfRequest, requestId, charge)
        add(chargesOfCall, metadata.causation_id ?? '', charge)
      }
      if (type === 'CreditAdjusted') {
        balance += parseCredits(data.amount)
        const { adjusts } = data
        if (adjusts !== null && reversed.has(adjusts)) faults.push(`${at}: ${adjusts} given back twice`)
        if (adjusts !== null) reversed.add(adjusts)
      }
      if (balance < -limit) faults.push(`${at}: overdrawn to ${balance}`)
    }
  }
  return { organizationId, calls, chargesOfRequest, chargesOfCall, reversed, grants, balance, faults }
}

const add = (to: Map<string, Charge[]>, key: string, charge: Charge): void => {
  const known = to.get(key)
  if (known === undefined) to.set(key, [charge])
  else known.push(charge)
}

type Judging = {
  readonly calls: readonly MadeCall[]
  readonly reads: readonly Read[]
  readonly hasEnded: (place: number, run: number) => boolean
}

/** A charge in `refusedButCharged` might still be reversed, so check it again later. */
export const judge = ({ calls, reads, hasEnded }: Judging): Faults => {
  const faults: Faults = { lost: [], doubled: [], overdrawn: [], refusedButCharged: [], unexplained: [] }
  for (const read of reads) {
    const ofIt = calls.filter(({ organizationId }) => organizationId === read.organizationId)
    for (const fault of read.faults) faults[fault.includes('overdrawn') ? 'overdrawn' : 'doubled'].push(fault)
    for (const call of ofIt) judgeCall(call, read, { hasEnded, faults })
    unexplained(ofIt, read, faults)
  }
  return faults
}

const answersOf = ({ tries }: MadeCall): Answer[] =>
  tries.flatMap(({ end }) => (end.kind === 'answered' ? [end] : []))

const judgeCall = (
  call: MadeCall,
  read: Read,
  { hasEnded, faults }: Pick<Judging, 'hasEnded'> & { readonly faults: Faults },
): void => {
  const name = (): string => nameOf(call)
  const told = answersOf(call).filter(({ status }) => status === 200)
  for (const { requestId } of told) {
    const written = read.calls.get(requestId) ?? 0
    if (written === 0) faults.lost.push(`no call: ${name()}`)
    if (written > 1) faults.doubled.push(`${written} calls: ${name()}`)
  }
  const standing = chargesOf(call, read).filter(({ id }) => !read.reversed.has(id))
  const amount = standing.reduce((sum, charge) => sum + charge.amount, 0n)
  const toldAmount = told.reduce((sum, { charged }) => sum + charged, 0n)
  if (standing.length > (call.costs ? 1 : 0)) faults.doubled.push(`${standing.length} charges: ${name()}`)
  else if (toldAmount > amount) faults.lost.push(`answered ${toldAmount}, charged ${amount}: ${name()}`)
  else if (call.costs && told.length > 0 && amount === 0n)
    faults.lost.push(`answered without a charge: ${name()}`)
  else if (told.length > 0 && toldAmount < amount && call.tries.every(({ end }) => isToldWell(end)))
    faults.unexplained.push(`answered ${toldAmount}, charged ${amount}: ${name()}`)
  else if (told.length === 0 && amount > 0n && !call.tries.some((one) => mayBeCharged(one, call, hasEnded)))
    faults.refusedButCharged.push(name())
}

const nameOf = ({ path, body, key, tries }: MadeCall): string =>
  `${path} ${body} ${key ?? ''} ${JSON.stringify(tries, (_, value) => (typeof value === 'bigint' ? String(value) : value))}`

/** Whether the caller knows the outcome. */
const isToldWell = (end: Try['end']): boolean => end.kind === 'answered' && end.status < 500

/**
 * Whether a call without a 200 may have been charged. This is possible if the caller got no answer. After the answer "outcome
 * unknown", it is possible if the call can be repeated with its key, or if the process ended before it could reverse the charge.
 */
const mayBeCharged = (
  { end, place, run }: Try,
  { key }: Pick<MadeCall, 'key'>,
  hasEnded: Judging['hasEnded'],
): boolean =>
  end.kind === 'cut' ||
  end.kind === 'silent' ||
  (end.kind === 'answered' && end.status === 504 && (key !== null || hasEnded(place, run)))

const chargesOf = ({ organizationId, key, tries }: MadeCall, read: Read): readonly Charge[] => {
  if (key === null)
    return tries.flatMap(({ end }) =>
      end.kind === 'answered' ? (read.chargesOfRequest.get(end.requestId) ?? []) : [],
    )
  return read.chargesOfCall.get(eventIdOf(organizationId, commandKeyOf(key), 0)) ?? []
}

/** Charges for requests whose answer did not reach a caller. There cannot be more of them than interrupted requests. */
const unexplained = (calls: readonly MadeCall[], read: Read, { unexplained: faults }: Faults): void => {
  const known = new Set(calls.flatMap((call) => answersOf(call).map(({ requestId }) => requestId)))
  const cut = calls.flatMap(({ tries }) => tries).filter(({ end }) => end.kind !== 'answered').length
  const unanswered = [...read.chargesOfRequest.keys()].filter((requestId) => !known.has(requestId))
  if (unanswered.length > cut)
    faults.push(`${unanswered.length} charges of requests without an answer, but ${cut} were interrupted`)
}

/** The longest part of a span that contains none of the given instants and lies outside all windows. */
export const longestGap = (
  instants: readonly number[],
  { fromMs, toMs }: Window,
  down: readonly Window[],
): number => {
  const inside = instants.filter((at) => at > fromMs && at < toMs).sort((a, b) => a - b)
  const spans: Window[] = []
  let at = fromMs
  for (const window of [...down].sort((a, b) => a.fromMs - b.fromMs)) {
    if (window.fromMs > at) spans.push({ fromMs: at, toMs: Math.min(window.fromMs, toMs) })
    at = Math.max(at, window.toMs)
  }
  if (at < toMs) spans.push({ fromMs: at, toMs })
  let longest = 0
  for (const span of spans) {
    let before = span.fromMs
    for (const instant of [...inside.filter((one) => one > span.fromMs && one < span.toMs), span.toMs]) {
      longest = Math.max(longest, instant - before)
      before = instant
    }
  }
  return longest
}
