import { z } from 'zod'
import { formatCredits } from '../../billing/money.ts'
import { query } from '../declare.ts'
import { instant, organization } from '../fields.ts'
import { balanceAt } from './balance-at.ts'
import { balance } from './credits.ts'
import { lotsLeft } from './lots.ts'

export const showBalance = query({
  name: 'credits balance',
  action: 'accounts.read',
  summary: 'the balance, from the ledger itself: now, or as of an instant',
  input: z.object({
    organization: organization(),
    at: instant({
      label: 'As of (UTC)',
      help: 'ISO 8601 instant; later movements are not counted (default now)',
    }).optional(),
    known_at: instant({
      label: 'As known at (UTC)',
      help: 'ISO 8601 instant; later records are not counted (default now)',
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

export const listLots = query({
  name: 'credits lots',
  action: 'accounts.read',
  summary: 'list the lots that still have credits, in the order in which charges draw them',
  input: z.object({ organization: organization() }),
  columns: [
    { name: 'grant_id', label: 'Lot', kind: 'id' },
    { name: 'left', label: 'Left', kind: 'credits' },
    { name: 'granted', label: 'Granted', kind: 'credits' },
    { name: 'priority', label: 'Priority', kind: 'number' },
    { name: 'expires_at', label: 'Expires', kind: 'instant' },
    { name: 'reason', label: 'Reason' },
    { name: 'reference', label: 'Reference' },
  ],
  run: async ({ foundation }, { organization: organizationId }) => {
    const { lots } = await lotsLeft(foundation, organizationId)
    return {
      json: lots.map(({ grant_id, left, granted, priority, expires_at, reason, reference, revision }) => ({
        ...{ grant_id, left, granted, priority, expires_at, reason, reference, revision },
      })),
    }
  },
})

export const creditQueries = [showBalance, listLots]
