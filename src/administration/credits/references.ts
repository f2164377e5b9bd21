import { randomUUID } from 'node:crypto'
import { creditsText, formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import { appendChained } from '../../event-log/append-chained.ts'
import { AppendConflict, type EventLog } from '../../event-log/port.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { decodeEvent, encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import type { ReferenceReserved } from '../../events/credits.ts'
import { referenceStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { balanceOf } from '../../ledger/account.ts'
import { CommandRefused, type Instruction } from '../../ledger/command.ts'
import { ledgerPages } from '../../ledger/read-ledger.ts'
import { InputFault } from '../input.ts'

/**
 * A credit movement under an operator's reference is made exactly once, however often the command is run.
 *
 * Each reference has its own stream. The first event of the stream states the movement, and the ledger's revision at that time. The
 * id of the movement's event is derived from the reference, and the ledger is searched for this id from that revision on. After an
 * interruption or a lost answer, the command can be run again.
 */

type Sources = Pick<Foundation, 'eventLog' | 'ledger'>

export type Movement = {
  readonly movement: ReferenceReserved['movement']
  /** Null for the remaining cost of the refunded call. */
  readonly amount: MicroCredits | null
  /** Null unless the movement is a grant. */
  readonly priority: number | null
  readonly expiresAt: string | null
  /** The refunded call; null for other movements. */
  readonly requestId: string | null
}

type Referenced = {
  readonly organizationId: string
  readonly reference: string
  readonly named: Movement
  /** The command without its key and envelope, which `moveOnce` adds. */
  readonly command: { readonly actor: string } & Extract<Instruction, { kind: 'grant' | 'adjust' }>
}

type Named = Pick<Referenced, 'organizationId' | 'reference' | 'named'>

type There = { readonly event: LedgerEvent; readonly revision: number }

export type Moved = There & { readonly balance: MicroCredits; readonly already: boolean }

/**
 * Writes the movement under a reference, or finds it if it was written before. Throws `CommandRefused` if the reference names another
 * movement, and `InputFault` if a new lot would already have expired.
 */
export const moveOnce = async (sources: Sources, referenced: Referenced): Promise<Moved> => {
  const { organizationId, reference, named, command } = referenced
  const known = await lookUpMovement(sources, referenced)
  if (known !== null && known.there !== null) return movedBefore(sources, organizationId, known.there)
  refuseExpired(named)
  const { actor, amount } = command
  const reserved = known?.reserved ?? (await reserve(sources, referenced, { actor, amount, whole: false }))
  const there = known ?? (await lookUp(sources, referenced, reserved))
  if (there.there !== null) return movedBefore(sources, organizationId, there.there)
  const requestId = randomUUID()
  const committed = await sources.ledger.submit(organizationId, {
    ...command,
    key: movementKey(named.movement, reference),
    absentUpTo: there.upTo,
    requestId,
    atMs: Date.now(),
  })
  const [event] = committed.events
  if (event === undefined) throw new Error(`reference ${reference} of ${organizationId} led to no event`)
  // Two processes can reach this line with the same reference, but only one of them has written the event.
  const { balance, revision } = committed
  return { event, revision, balance, already: committed.requestId !== requestId }
}

/** A movement that an earlier command wrote, with the current balance. */
export const movedBefore = async (
  { ledger }: Pick<Sources, 'ledger'>,
  organizationId: string,
  there: There,
): Promise<Moved> => ({
  ...there,
  balance: balanceOf(await ledger.account(organizationId), Date.now()),
  already: true,
})

/** Finds a reference and the movement under it; null if the reference has not been used. Writes nothing. */
export const lookUpMovement = async (sources: Sources, referenced: Named): Promise<LookedUp | null> => {
  const reserved = await reservationFor(sources, referenced)
  return reserved === null ? null : lookUp(sources, referenced, reserved)
}

type LookedUp = {
  readonly reserved: ReferenceReserved
  readonly there: There | null
  /** If `there` is null, the ledger has been searched up to this revision. */
  readonly upTo: number
}

const lookUp = async (
  { eventLog }: Sources,
  { organizationId, reference, named }: Named,
  reserved: ReferenceReserved,
): Promise<LookedUp> => {
  const id = eventIdOf(organizationId, movementKey(named.movement, reference), 0)
  let upTo = -1
  for await (const page of ledgerPages(eventLog, organizationId, reserved.ledger_revision)) {
    const found = page.find((recorded) => recorded.id === id)
    if (found !== undefined) {
      const { type, data } = decodeEvent(found)
      return { reserved, there: { event: { type, data } as LedgerEvent, revision: found.revision }, upTo }
    }
    upTo = page.at(-1)?.revision ?? upTo
  }
  refuseShortened(reserved, upTo)
  return { reserved, there: null, upTo }
}

/** Throws `CommandRefused` if a part of the ledger is missing, because the movement may be in that part. */
export const refuseShortened = (
  { organization_id, reference, ledger_revision }: ReferenceReserved,
  upTo: number,
): void => {
  if (upTo >= ledger_revision) return
  throw new CommandRefused(
    `reference "${reference}" was reserved at revision ${ledger_revision} of the ledger of ${organization_id}, but that ledger now ends earlier; see "ledger verify"`,
  )
}

export const movementKey = (movement: Movement['movement'], reference: string): string =>
  `${movement}/reference/${reference}`

/**
 * The reservation of a reference; null if the reference has not been used. Throws `CommandRefused` if the reference names another movement.
 */
export const reservationFor = async (
  { eventLog }: Pick<Sources, 'eventLog'>,
  named: Named,
): Promise<ReferenceReserved | null> => {
  const reserved = await reservationOf(eventLog, named)
  if (reserved !== null) refuseOther(reserved, named.named)
  return reserved
}

const reservationOf = async (
  eventLog: Pick<EventLog, 'read'>,
  { organizationId, reference }: Pick<Referenced, 'organizationId' | 'reference'>,
): Promise<ReferenceReserved | null> => {
  const stream = referenceStream(organizationId, reference)
  const [first] = await readIfAny(eventLog, stream, { max: 1 })
  if (first === undefined) return null
  const { type, data } = decodeEvent(first)
  if (type === 'ReferenceReserved') return data
  throw new Error(`${stream} begins with ${type}`)
}

/**
 * Reserves the reference, or returns the reservation if another process has already made it. `whole` means that the amount is the
 * remaining cost of the refunded call. Throws `CommandRefused` if the reference names another movement.
 */
export const reserve = async (
  { eventLog, ledger }: Sources,
  { organizationId, reference, named }: Named,
  { actor, amount, whole }: { actor: string; amount: MicroCredits; whole: boolean },
): Promise<ReferenceReserved> => {
  const account = await ledger.account(organizationId)
  if (!account.registered)
    throw new CommandRefused(`organization ${organizationId} is not registered; see "org list"`)
  const stream = referenceStream(organizationId, reference)
  const data: ReferenceReserved = {
    organization_id: organizationId,
    reference,
    movement: named.movement,
    amount: formatCredits(amount),
    priority: named.priority,
    expires_at: named.expiresAt,
    ledger_revision: account.revision,
    refunds: named.requestId === null ? null : { request_id: named.requestId, whole },
  }
  // The id is random, so that the reservation of another process is not mistaken for this one.
  const id = eventIdOf(stream, randomUUID(), 0)
  const effectiveAt = new Date().toISOString()
  try {
    await appendChained(eventLog, stream, 'none', [
      encodeEvent({ type: 'ReferenceReserved', data }, { id, actor, effectiveAt }),
    ])
  } catch (error) {
    if (!(error instanceof AppendConflict)) throw error
  }
  const reserved = await reservationFor({ eventLog }, { organizationId, reference, named })
  if (reserved === null) throw new Error(`${stream} does not exist although it was appended to`)
  return reserved
}

/** Throws `InputFault` if a new lot would already have expired. */
export const refuseExpired = ({ expiresAt }: Movement): void => {
  if (expiresAt !== null && Date.parse(expiresAt) <= Date.now())
    throw new InputFault('expires-at', `${expiresAt} is in the past`)
}

const refuseOther = (reserved: ReferenceReserved, asked: Movement): void => {
  const { reference, movement, amount, priority, expires_at, refunds } = reserved
  const sameAmount = asked.amount === null ? refunds?.whole === true : amount === formatCredits(asked.amount)
  const same =
    movement === asked.movement &&
    sameAmount &&
    priority === asked.priority &&
    expires_at === asked.expiresAt &&
    (refunds?.request_id ?? null) === asked.requestId
  if (same) return
  const requestId = refunds?.request_id ?? null
  const first = said({ movement, amount: parseCredits(amount), priority, expiresAt: expires_at, requestId })
  throw new CommandRefused(
    `reference "${reference}" already names ${first}; you asked for ${said(asked)}. Use another reference for another movement`,
  )
}

const said = ({ movement, amount, priority, expiresAt, requestId }: Movement): string => {
  const credits = amount === null ? 'all that is left' : creditsText(formatCredits(amount))
  if (movement === 'refund') return `a refund of ${credits} of call ${requestId}`
  return movement === 'grant'
    ? `a grant of ${credits} with priority ${priority} that ${expiresAt === null ? 'never expires' : `expires at ${expiresAt}`}`
    : `an adjustment of ${credits}`
}
