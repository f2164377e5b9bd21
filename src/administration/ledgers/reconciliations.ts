import { randomUUID } from 'node:crypto'
import { appendNext } from '../../event-log/append-next.ts'
import type { EventLog } from '../../event-log/port.ts'
import { openablePages } from '../../event-log/read-openable.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { decodeEvent, encodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import { reconciledStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import type { Reconciled } from '../../ledger/check/reconcile.ts'
import { createActs } from '../acts.ts'
import { recordOperation } from '../operator-events.ts'

const ledgersPerEvent = 1_000

type Ledgers = readonly DomainEventOf<'LedgersReconciled'>['data']['ledgers'][number][]

/** The text to sign. Its own format prevents the use of a checkpoint's signature for this text. */
const textOf = (ledgers: Ledgers): string =>
  `enrichment-ledger reconciled ledgers\n${ledgers.map((one) => `${one.organization_id} ${one.revision}\n`).join('')}`

/**
 * Records the result of a reconciliation. If a ledger agreed, the next run reads only its later events. Otherwise, the next run
 * reads the same events again.
 */
export const recordReconciled = async (
  foundation: Pick<Foundation, 'eventLog' | 'checkpoints'>,
  found: readonly Reconciled[],
  { whole, actor }: { whole: boolean; actor: string },
): Promise<void> => {
  const agreeing = found.filter(({ differences, through, from }) => differences === 0 && through >= from)
  const ledgers = agreeing.map(({ organizationId, through }) => ({
    organization_id: organizationId,
    revision: through,
  }))
  const calls = found.reduce((sum, one) => sum + one.calls, 0)
  const differences = found.reduce((sum, one) => sum + one.differences, 0)
  const named = found
    .flatMap((one) => one.named.map((each) => `${one.organizationId}: ${each}`.slice(0, 200)))
    .slice(0, 20)
  await recordRevisions(foundation, ledgers, { whole, actor })
  const data = { whole, ledgers: [], ledger_count: ledgers.length, calls, differences, named, signed: null }
  await recordOperation(foundation.eventLog, { type: 'LedgersReconciled', data }, { actor })
}

/**
 * Records the revisions in the stream of this month. The first record of a month repeats the revisions of the previous month, so that
 * only the streams of two months are ever read. Without a signing key nothing is recorded, because an unsigned event is not trusted.
 */
const recordRevisions = async (
  foundation: Pick<Foundation, 'eventLog' | 'checkpoints'>,
  ledgers: Ledgers,
  { whole, actor }: { whole: boolean; actor: string },
): Promise<void> => {
  const { eventLog, checkpoints } = foundation
  const effectiveAt = new Date().toISOString()
  const stream = reconciledStream(effectiveAt)
  const isFirst = ledgers.length > 0 && (await readIfAny(eventLog, stream, { from: 0, max: 1 })).length === 0
  const last = isFirst ? await lastReconciled(foundation) : new Map<string, number>()
  for (const { organization_id, revision } of ledgers) last.set(organization_id, revision)
  const recorded = [...last].map(([organization_id, revision]) => ({ organization_id, revision }))
  for (let at = 0; at < recorded.length; at += ledgersPerEvent) {
    const part = recorded.slice(at, at + ledgersPerEvent)
    const signature = await checkpoints.sign(textOf(part))
    if (signature === null) return
    const signed = { key_id: signature.keyId, signature: signature.value }
    const data = { whole, ledgers: part, calls: 0, differences: 0, named: [], signed }
    const envelope = { id: randomUUID(), actor, effectiveAt }
    await appendNext(eventLog, stream, [encodeEvent({ type: 'LedgersReconciled', data }, envelope)])
  }
}

/** The streams of the previous month and of this month (UTC). */
const recentStreams = (): string[] => {
  const now = new Date()
  const previous = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1))
  return [previous, now].map((at) => reconciledStream(at.toISOString()))
}

/**
 * The revision up to which each ledger agreed. Anyone with access to the database could append such an event, so an unsigned
 * event is not trusted. A ledger that is missing here is compared from its beginning.
 */
export const lastReconciled = async ({
  eventLog,
  checkpoints,
}: Pick<Foundation, 'eventLog' | 'checkpoints'>): Promise<Map<string, number>> => {
  const last = new Map<string, number>()
  // After an unreadable event, at worst a larger part of a ledger is compared again.
  for (const stream of recentStreams())
    for await (const page of openablePages(eventLog, stream, { from: 0 }))
      for (const recorded of page) {
        if (recorded.type !== 'LedgersReconciled') continue
        const { type, data } = decodeEvent(recorded)
        if (type !== 'LedgersReconciled' || data.signed === null) continue
        const { key_id: keyId, signature: value } = data.signed
        if (await checkpoints.isSigned(textOf(data.ledgers), { keyId, value }))
          for (const { organization_id, revision } of data.ledgers) last.set(organization_id, revision)
      }
  return last
}

export type LastReconciled = {
  readonly at: string
  readonly whole: boolean
  readonly calls: number
  readonly differences: number
  readonly named: readonly string[]
}

/** The last reconciliation; null if there is none. */
export const lastReconciliation = async (
  eventLog: Pick<EventLog, 'read'>,
): Promise<LastReconciled | null> => {
  const found = await createActs(eventLog, ['LedgersReconciled']).newest('LedgersReconciled')
  if (found === undefined) return null
  const { type, data, metadata } = decodeEvent(found)
  return type === 'LedgersReconciled' ? { ...data, at: metadata.effective_at } : null
}
