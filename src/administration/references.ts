import { randomUUID } from 'node:crypto'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import { appendChained } from '../event-log/append-chained.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { AppendConflict, type EventLog, StreamMissing } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import type { ReferenceReserved } from '../events/credits.ts'
import { referenceStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { Instruction } from '../ledger/command.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { ledgerPages } from '../ledger/read-ledger.ts'
import { InputFault } from './input.ts'

/**
 * Movements of credits that an operator's reference names: once, ever, however often and from wherever the command is given.
 *
 * The first append to the reference's own stream, expected to be none, says what it names. The movement's event id derives from
 * the reference, and it is looked for in the ledger from where that stood at the time. So a command that ended between the two,
 * or that never heard its answer, is finished by giving it again.
 */

type Sources = Pick<Foundation, 'eventLog' | 'ledger'>

/** What a reference names. */
export type Movement = {
  readonly movement: ReferenceReserved['movement']
  readonly amount: MicroCredits
  /** Null for an adjustment. */
  readonly priority: number | null
  readonly expiresAt: string | null
}

type Referenced = {
  readonly organizationId: string
  readonly reference: string
  readonly named: Movement
  /** The command itself; its key and envelope are made here. */
  readonly command: { readonly actor: string } & Extract<Instruction, { kind: 'grant' | 'adjust' }>
}

/** A movement, and whether it was there before the command was given. */
type Moved = { readonly event: LedgerEvent; readonly revision: number; readonly already: boolean }

/**
 * The movement that a reference names, written now or before. Throws `CommandRefused` where it names another one, and
 * `InputFault` where a new lot would have expired already.
 */
export const moveOnce = async (sources: Sources, referenced: Referenced): Promise<Moved> => {
  const { organizationId, reference, named, command } = referenced
  const known = await lookUpMovement(sources, referenced)
  if (known !== null && known.there !== null) return { ...known.there, already: true }
  refuseExpired(named)
  const reserved = known?.reserved ?? (await reserve(sources, referenced))
  const there = known ?? (await lookUp(sources, referenced, reserved))
  if (there.there !== null) return { ...there.there, already: true }
  const requestId = randomUUID()
  const committed = await sources.ledger.submit(organizationId, {
    ...command,
    key: keyOf(named.movement, reference),
    absentUpTo: there.upTo,
    requestId,
    atMs: Date.now(),
  })
  const [event] = committed.events
  if (event === undefined) throw new Error(`reference ${reference} of ${organizationId} came to nothing`)
  // Two processes may have come to here with the same reference: the event is of one of them.
  return { event, revision: committed.revision, already: committed.requestId !== requestId }
}

/** What a reference names, and its movement where the ledger holds it; null: it names nothing so far. Writes nothing. */
export const lookUpMovement = async (
  sources: Sources,
  referenced: Pick<Referenced, 'organizationId' | 'reference' | 'named'>,
): Promise<LookedUp | null> => {
  const reserved = await reservationOf(sources.eventLog, referenced)
  return reserved === null ? null : lookUp(sources, referenced, reserved)
}

type LookedUp = {
  readonly reserved: ReferenceReserved
  readonly there: Omit<Moved, 'already'> | null
  /** Up to where the ledger does not hold it. */
  readonly upTo: number
}

const lookUp = async (
  { eventLog }: Sources,
  { organizationId, reference, named }: Pick<Referenced, 'organizationId' | 'reference' | 'named'>,
  reserved: ReferenceReserved,
): Promise<LookedUp> => {
  refuseOther(reference, reserved, named)
  const id = eventIdOf(organizationId, keyOf(named.movement, reference), 0)
  let upTo = -1
  for await (const page of ledgerPages(eventLog, organizationId, reserved.ledger_revision)) {
    const found = page.find((recorded) => recorded.id === id)
    if (found !== undefined) {
      const { type, data } = decodeEvent(found)
      return { reserved, there: { event: { type, data } as LedgerEvent, revision: found.revision }, upTo }
    }
    upTo = page.at(-1)?.revision ?? upTo
  }
  // Where a part of the ledger is gone, the movement may have been in it.
  if (upTo < reserved.ledger_revision)
    throw new CommandRefused(
      `reference "${reference}" was reserved at revision ${reserved.ledger_revision} of ${organizationId}, whose ledger ends before it; see "ledger verify"`,
    )
  return { reserved, there: null, upTo }
}

const keyOf = (movement: Movement['movement'], reference: string): string =>
  `${movement}/reference/${reference}`

const reservationOf = async (
  eventLog: Pick<EventLog, 'read'>,
  { organizationId, reference }: Pick<Referenced, 'organizationId' | 'reference'>,
): Promise<ReferenceReserved | null> => {
  const stream = referenceStream(organizationId, reference)
  try {
    const [first] = await eventLog.read(stream, { max: 1 })
    if (first === undefined) return null
    const { type, data } = decodeEvent(first)
    if (type === 'ReferenceReserved') return data
    throw new Error(`${stream} begins with ${type}`)
  } catch (error) {
    if (error instanceof StreamMissing) return null
    throw error
  }
}

/** Says what the reference names, unless another process was first. Whoever was, what is in the log holds. */
const reserve = async (
  { eventLog, ledger }: Sources,
  { organizationId, reference, named, command }: Referenced,
): Promise<ReferenceReserved> => {
  const account = await ledger.account(organizationId)
  if (!account.registered) throw new CommandRefused(`organization ${organizationId} is not registered`)
  const stream = referenceStream(organizationId, reference)
  const data: ReferenceReserved = {
    organization_id: organizationId,
    reference,
    movement: named.movement,
    amount: formatCredits(named.amount),
    priority: named.priority,
    expires_at: named.expiresAt,
    ledger_revision: account.revision,
  }
  // An id of its own: a reservation of another process must not be taken for this one.
  const id = eventIdOf(stream, randomUUID(), 0)
  const effectiveAt = new Date().toISOString()
  try {
    await appendChained(eventLog, stream, 'none', [
      encodeEvent({ type: 'ReferenceReserved', data }, { id, actor: command.actor, effectiveAt }),
    ])
  } catch (error) {
    if (!(error instanceof AppendConflict)) throw error
  }
  const reserved = await reservationOf(eventLog, { organizationId, reference })
  if (reserved === null) throw new Error(`${stream} is not there although it was appended to`)
  return reserved
}

/** Throws `InputFault` where a new lot would have expired already. */
export const refuseExpired = ({ expiresAt }: Movement): void => {
  if (expiresAt !== null && Date.parse(expiresAt) <= Date.now())
    throw new InputFault('expires-at', `${expiresAt} has passed already`)
}

const refuseOther = (reference: string, reserved: ReferenceReserved, asked: Movement): void => {
  const wanted = { ...asked, amount: formatCredits(asked.amount) }
  const same =
    reserved.movement === asked.movement &&
    reserved.amount === wanted.amount &&
    reserved.priority === asked.priority &&
    reserved.expires_at === asked.expiresAt
  if (same) return
  const first = { ...reserved, expiresAt: reserved.expires_at }
  throw new CommandRefused(
    `reference "${reference}" names ${said(first)} already; asked for was ${said(wanted)}. Another movement takes another reference`,
  )
}

const said = ({
  movement,
  amount,
  priority,
  expiresAt,
}: Omit<Movement, 'amount'> & { readonly amount: string }): string =>
  movement === 'grant'
    ? `a grant of ${amount} credits with priority ${priority} that ${expiresAt === null ? 'never expires' : `expires at ${expiresAt}`}`
    : `an adjustment of ${amount} credits`
