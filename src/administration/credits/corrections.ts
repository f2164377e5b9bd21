import type { MicroCredits } from '../../billing/money.ts'
import type { CreditAdjusted } from '../../events/credits.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import type { Instruction } from '../../ledger/command.ts'
import { type Preview, previewOf, uniqueCommandKey } from './credits.ts'
import { lookUpMovement, type Moved, type Movement, movedBefore, moveOnce } from './references.ts'

type Sources = Pick<Foundation, 'eventLog' | 'ledger'>

/**
 * The result of a correction. `already` is true if an earlier command made the correction under the same reference. After a dry
 * run, `balance` is the expected balance.
 */
export type Corrected = {
  readonly adjusted: CreditAdjusted
  readonly balance: MicroCredits
  /** Null if nothing was written. */
  readonly revision: number | null
  readonly already: boolean
}

type Asked = {
  readonly organizationId: string
  readonly reason: string
  readonly actor: string
  readonly dryRun: boolean
}

/** Takes back the rest of a lot. Throws `CommandRefused` if nothing is left. */
export const voidGrant = async (
  sources: Sources,
  { organizationId, dryRun, ...asked }: Asked & { readonly grantId: string },
): Promise<Corrected> => {
  const command = { ...asked, kind: 'void' } as const
  if (dryRun) return previewed(await previewOf(sources, organizationId, command))
  return submitted(sources, organizationId, command)
}

const submitted = async (
  { ledger }: Sources,
  organizationId: string,
  command: { readonly actor: string } & Extract<Instruction, { kind: 'void' | 'adjust' }>,
): Promise<Corrected> => {
  const own = { key: uniqueCommandKey(command.kind), atMs: Date.now() }
  const { events, balance, revision } = await ledger.submit(organizationId, { ...command, ...own })
  return { adjusted: adjustmentIn(events[0]), balance, revision, already: false }
}

/**
 * Adds credits, or removes them if the amount is negative. Throws `CommandRefused` if more would be removed than is available, or
 * if the reference names another movement.
 */
export const adjust = async (
  sources: Sources,
  {
    organizationId,
    dryRun,
    reference,
    ...asked
  }: Asked & { readonly amount: MicroCredits; readonly reference?: string | undefined },
): Promise<Corrected> => {
  const command = {
    ...({ ...asked, kind: 'adjust', adjusts: null, rerateRun: null } as const),
    ...(reference === undefined ? {} : { reference }),
  }
  const named: Movement = {
    movement: 'adjustment',
    amount: asked.amount,
    priority: null,
    expiresAt: null,
    requestId: null,
  }
  if (dryRun) {
    const known =
      reference === undefined ? null : await lookUpMovement(sources, { organizationId, reference, named })
    if (known?.there != null) return corrected(await movedBefore(sources, organizationId, known.there))
    return previewed(await previewOf(sources, organizationId, command))
  }
  if (reference !== undefined)
    return corrected(await moveOnce(sources, { organizationId, reference, named, command }))
  return submitted(sources, organizationId, command)
}

const corrected = ({ event, ...moved }: Moved): Corrected => ({ adjusted: adjustmentIn(event), ...moved })

/** A preview in the form of a result. */
export const previewed = ({ events, balanceAfter }: Preview): Corrected => ({
  adjusted: adjustmentIn(events[0]),
  balance: balanceAfter,
  revision: null,
  already: false,
})

/** The correction that a command wrote. */
export const adjustmentIn = (event: Preview['events'][number] | undefined): CreditAdjusted => {
  if (event?.type !== 'CreditAdjusted') throw new Error(`a correction wrote ${event?.type ?? 'nothing'}`)
  return event.data
}

/** Sets the balance below which an organization is notified; null stops the notices. */
export const setThreshold = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { organizationId, amount, actor }: { organizationId: string; amount: MicroCredits | null; actor: string },
): Promise<{ revision: number }> =>
  ledger.submit(organizationId, {
    key: uniqueCommandKey('threshold'),
    atMs: Date.now(),
    actor,
    kind: 'set_threshold',
    amount,
  })
