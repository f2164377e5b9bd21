import { z } from 'zod'
import { formatCredits, type MicroCredits } from '../../billing/money.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import {
  type AsOf,
  balanceOfFold,
  foldBalance,
  newBalanceFold,
  recordedMsOf,
} from '../../ledger/explain/balance-at.ts'
import { openedBy } from '../../ledger/explain/lots-drawn.ts'
import type { GrantedLot } from '../../ledger/granted-lot.ts'
import { ledgerEventAt, ledgerPages } from '../../ledger/read-ledger.ts'
import { query } from '../declare.ts'
import { instant, organization } from '../fields.ts'
import { balance, registeredAccount } from './credits.ts'

/**
 * The balance at one instant, as known at another instant, calculated from the ledger. `revision` is that of the last known event,
 * or −1. Throws `CommandRefused` if the ledger does not exist.
 */
export const balanceAt = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  {
    organizationId,
    asOf,
    onProgress,
  }: { organizationId: string; asOf: AsOf; onProgress?: (events: number) => void },
): Promise<{ balance: MicroCredits; overdrawn: MicroCredits; revision: number }> => {
  const fold = newBalanceFold()
  let read = 0
  reading: for await (const page of ledgerPages(eventLog, organizationId)) {
    read += page.length
    for (const recorded of page) {
      const event = decodeEvent(recorded)
      // Events are in the order of their recording times, so all further events were recorded later as well.
      if (recordedMsOf(event) > asOf.knownAtMs) break reading
      foldBalance(fold, event, asOf)
    }
    onProgress?.(read)
  }
  if (read === 0) throw new CommandRefused(`there is no ledger of ${organizationId}; see "org list"`)
  return { balance: balanceOfFold(fold, asOf), overdrawn: fold.overdrawn, revision: fold.revision }
}

const showBalance = query({
  name: 'credits balance',
  action: 'accounts.read',
  summary: 'show the current balance, or the balance at an instant, calculated from the ledger',
  input: z.object({
    organization: organization(),
    at: instant({
      label: 'As of (UTC)',
      help: 'ISO 8601 instant; later movements are not counted (default: now)',
    }).optional(),
    known_at: instant({
      label: 'As known at (UTC)',
      help: 'ISO 8601 instant; later records are not counted (default: now)',
    }).optional(),
  }),
  anyHistory: true,
  run: async ({ foundation, progress }, { organization: organizationId, at, known_at }) => {
    if (at === undefined && known_at === undefined) {
      const { name, balance: now, available, revision } = await balance(foundation, organizationId)
      return {
        json: {
          organization_id: organizationId,
          name,
          balance: formatCredits(now),
          available: formatCredits(available),
          revision,
        },
      }
    }
    const now = new Date().toISOString()
    const wanted = { at: at ?? now, known_at: known_at ?? now }
    const found = await balanceAt(foundation, {
      organizationId,
      asOf: { atMs: Date.parse(wanted.at), knownAtMs: Date.parse(wanted.known_at) },
      onProgress: (events) => progress(`${events} events`),
    })
    return {
      json: {
        organization_id: organizationId,
        ...wanted,
        balance: formatCredits(found.balance),
        overdrawn: formatCredits(found.overdrawn),
        revision: found.revision,
      },
    }
  },
})

const listLots = query({
  name: 'credits lots',
  action: 'accounts.read',
  summary: 'list the lots that still have credits, in the order in which charges use them',
  input: z.object({ organization: organization() }),
  columns: [
    { name: 'grant_id', label: 'Lot', kind: 'id' },
    { name: 'left', label: 'Remaining', kind: 'credits' },
    { name: 'granted', label: 'Granted', kind: 'credits' },
    { name: 'priority', label: 'Priority', kind: 'number' },
    { name: 'expires_at', label: 'Expires (UTC)', kind: 'instant' },
    { name: 'reason', label: 'Reason' },
    { name: 'reference', label: 'Reference' },
  ],
  next: [{ name: 'credits grant', label: 'Grant credits' }],
  nextOfRow: [{ name: 'credits void', label: 'Take back', given: ({ grant_id }) => ({ grant: grant_id }) }],
  run: async ({ foundation }, { organization: organizationId }) => {
    const { lots } = await lotsLeft(foundation, organizationId)
    return {
      json: lots.map(({ grant_id, left, granted, priority, expires_at, reason, reference, revision }) => ({
        grant_id,
        left,
        granted,
        priority,
        expires_at,
        reason,
        reference,
        revision,
      })),
    }
  },
})

export const declarations = [showBalance, listLots]

/** `left` and `granted` are canonical decimal strings. */
type LotLeft = GrantedLot & { readonly left: string }

/** Lots that have credits left, in the order in which charges use them. Throws `CommandRefused` if the organization is not registered. */
export const lotsLeft = async (
  { eventLog, ledger }: Pick<Foundation, 'eventLog' | 'ledger'>,
  organizationId: string,
): Promise<{ lots: LotLeft[]; overdrawn: string; revision: number }> => {
  const account = await registeredAccount(ledger, organizationId)
  const nowMs = Date.now()
  const lots: LotLeft[] = []
  for (const { grantId, revision, expiresAtMs, remaining } of account.lots) {
    if (expiresAtMs <= nowMs) continue
    const opened = openedBy(await ledgerEventAt(eventLog, organizationId, revision), grantId)
    if (opened === null)
      throw new Error(`the ledger of ${organizationId} does not open lot ${grantId} at revision ${revision}`)
    lots.push({ ...opened, left: formatCredits(remaining) })
  }
  return { lots, overdrawn: formatCredits(account.overdrawn), revision: account.revision }
}
