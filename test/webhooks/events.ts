/** Events as the event log returns them. */
import { formatCredits } from '../../src/billing/money.ts'
import { type DecodedEvent, uuidV5 } from '../../src/event-log/stored-event.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { ledgerStream } from '../../src/events/streams.ts'

export const organization = {
  id: 'org_01JAAAAAAAAAAAAAAAAAAAAAAA',
  uuid: '00000000-0000-5000-8000-000000000000',
} as const

/** An adjustment of the organization's balance. */
export const moved = (by: bigint): DomainEvent => ({
  type: 'CreditAdjusted',
  data: {
    adjustment_id: organization.uuid,
    adjusts: null,
    reason: 'r',
    rerate_run: null,
    allocations: [],
    overdraft_repaid: '0',
    kind: 'adjustment',
    fills: [],
    reference: null,
    charged_at: null,
    amount: formatCredits(by * 1_000_000n),
  },
})

/** The nth event in the log, with an id made from `n`. */
export const decoded = (
  event: DomainEvent,
  n: number,
  stream: string = ledgerStream(organization.id),
): DecodedEvent => ({
  ...event,
  recorded: {
    id: uuidV5(`${n}`),
    type: event.type,
    data: JSON.stringify(event.data),
    metadata: '{}',
    position: BigInt(n + 1),
    stream,
    revision: n,
    recordedAtMs: 0,
  },
  metadata: {
    schema_version: 1,
    actor: 'system',
    effective_at: '2026-11-01T00:00:00.000Z',
    recorded_at: '2026-11-01T00:00:00.000Z',
    digest: 'D'.repeat(43),
  },
})
