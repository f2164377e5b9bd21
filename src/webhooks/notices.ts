import { formatCredits, type MicroCredits, parseCredits } from '../billing/money.ts'
import type { DecodedEvent } from '../event-log/stored-event.ts'
import { organizationOfStream } from '../events/streams.ts'
import type { WebhookEvent } from '../events/webhooks.ts'

/** Derives notices from logged events. Pure: the same events always cause the same notices, regardless of how they are batched. */

/** A notice, before its receivers are determined. */
export type Notice = {
  readonly event: WebhookEvent
  /** Null: the notice concerns everyone. */
  readonly organizationId: string | null
  /** Identifies the cause of the notice. Each source causes at most one notice. */
  readonly source: string
  /** When it happened, ISO 8601. */
  readonly at: string
  /** Webhooks created after this time do not receive the notice. */
  readonly recordedAtMs: number
  /** Never contains the organization, secrets or personal data. */
  readonly data: Readonly<Record<string, unknown>>
}

/** The part of a ledger's state that notices depend on. */
export type Balance = { readonly micro: MicroCredits; readonly threshold: MicroCredits | null }

const noBalance: Balance = { micro: 0n, threshold: null }

const isLow = ({ micro, threshold }: Balance): boolean => threshold !== null && micro < threshold

/** Only these events can cause notices. Other events, most of them calls, are not parsed. */
export const noticedTypes: ReadonlySet<string> = new Set<DecodedEvent['type']>([
  'CreditGranted',
  'CreditCharged',
  'CreditExpired',
  'CreditAdjusted',
  'BalanceThresholdSet',
  'PriceOverrideSet',
  'PriceOverrideWithdrawn',
  'PriceBookPublished',
  'PriceBookWithdrawn',
  'LogCheckpointed',
])

const balanceAfter = (before: Balance, event: DecodedEvent): Balance => {
  switch (event.type) {
    case 'CreditGranted':
    case 'CreditAdjusted':
      return { ...before, micro: before.micro + parseCredits(event.data.amount) }
    case 'CreditCharged':
    case 'CreditExpired':
      return { ...before, micro: before.micro - parseCredits(event.data.amount) }
    case 'BalanceThresholdSet':
      return { ...before, threshold: event.data.amount === null ? null : parseCredits(event.data.amount) }
    default:
      return before
  }
}

/**
 * Returns the notice that an event causes, if any. Must be called in log order. `balances` must contain the balance of the event's
 * organization, and is updated. A balance causes a notice when it falls below the threshold. It must return to the threshold before it can
 * cause another notice. Throws if the event's data does not match its type.
 */
export const noticeOf = (event: DecodedEvent, balances: Map<string, Balance>): Notice | null => {
  const organizationId = organizationOfStream(event.recorded.stream)
  const told = organizationId === null ? noticeOfAll(event) : noticeOfOne(organizationId, event, balances)
  return told === null ? null : { ...placeOf(event), organizationId, ...told }
}

type NoticeContent = Pick<Notice, 'event' | 'data'>

const noticeOfOne = (
  organizationId: string,
  event: DecodedEvent,
  balances: Map<string, Balance>,
): NoticeContent | null => {
  const before = balances.get(organizationId) ?? noBalance
  const after = balanceAfter(before, event)
  balances.set(organizationId, after)
  return !isLow(before) && isLow(after) ? lowBalance(after) : overrideNotice(event)
}

const placeOf = ({ recorded, metadata }: DecodedEvent): Pick<Notice, 'source' | 'at' | 'recordedAtMs'> => ({
  source: recorded.id,
  at: metadata.effective_at,
  // The metadata contains the time at which the event was written. Copying the log does not change it.
  recordedAtMs: Date.parse(metadata.recorded_at),
})

const lowBalance = ({ micro, threshold }: Balance): NoticeContent => ({
  event: 'balance.low',
  data: { balance: formatCredits(micro), threshold: threshold === null ? null : formatCredits(threshold) },
})

const overrideNotice = (event: DecodedEvent): NoticeContent | null => {
  if (event.type === 'PriceOverrideSet') {
    const { sku, amount, effective_from } = event.data
    return { event: 'price.changed', data: { change: 'override', sku, amount, effective_from } }
  }
  if (event.type !== 'PriceOverrideWithdrawn') return null
  const { sku } = event.data
  const effective_from = event.metadata.effective_at
  return { event: 'price.changed', data: { change: 'override_withdrawn', sku, effective_from } }
}

const noticeOfAll = (event: DecodedEvent): NoticeContent | null => {
  if (event.type === 'LogCheckpointed') {
    const { size, note } = event.data
    return { event: 'checkpoint', data: { size, note } }
  }
  if (event.type === 'PriceBookWithdrawn') {
    const data = { change: 'price_book_withdrawn', price_book_version: event.data.version }
    return { event: 'price.changed', data }
  }
  if (event.type !== 'PriceBookPublished') return null
  const { version, effective_from } = event.data
  return {
    event: 'price.changed',
    data: { change: 'price_book', price_book_version: version, effective_from },
  }
}
