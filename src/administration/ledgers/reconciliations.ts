import type { EventLog } from '../../event-log/port.ts'
import { openablePages } from '../../event-log/read-openable.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import { operatorStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import type { Reconciled } from '../../ledger/check/reconcile.ts'
import { createActs } from '../acts.ts'
import { recordOperation } from '../operator-events.ts'

const ledgersPerEvent = 1_000

type Ledgers = DomainEventOf<'LedgersReconciled'>['data']['ledgers']

/** The text to sign. Its own format prevents the use of a checkpoint's signature for this text. */
const textOf = (ledgers: Ledgers): string =>
  `enrichment-ledger reconciled ledgers\n${ledgers.map((one) => `${one.organization_id} ${one.revision}\n`).join('')}`

/**
 * Records the result of a reconciliation. If a ledger agreed, the next run reads only its later events. Otherwise, the next run
 * reads the same events again.
 */
export const recordReconciled = async (
  { eventLog, checkpoints }: Pick<Foundation, 'eventLog' | 'checkpoints'>,
  found: readonly Reconciled[],
  { whole, actor }: { whole: boolean; actor: string },
): Promise<void> => {
  const agreeing = found.filter(({ differences, through, from }) => differences === 0 && through >= from)
  const calls = found.reduce((sum, one) => sum + one.calls, 0)
  const differences = found.reduce((sum, one) => sum + one.differences, 0)
  const named = found
    .flatMap((one) => one.named.map((each) => `${one.organizationId}: ${each}`.slice(0, 200)))
    .slice(0, 20)
  for (let at = 0; at === 0 || at < agreeing.length; at += ledgersPerEvent) {
    const ledgers = agreeing
      .slice(at, at + ledgersPerEvent)
      .map(({ organizationId, through }) => ({ organization_id: organizationId, revision: through }))
    const signature = ledgers.length === 0 ? null : await checkpoints.sign(textOf(ledgers))
    const signed = signature === null ? null : { key_id: signature.keyId, signature: signature.value }
    const data = { whole, ledgers, calls, differences, named, signed }
    await recordOperation(eventLog, { type: 'LedgersReconciled', data }, { actor })
  }
}

/**
 * The revision up to which each ledger agreed. Anyone with access to the database could append such an event, so an unsigned
 * event is not trusted.
 */
export const lastReconciled = async ({
  eventLog,
  checkpoints,
}: Pick<Foundation, 'eventLog' | 'checkpoints'>): Promise<Map<string, number>> => {
  const last = new Map<string, number>()
  // After an unreadable event, at worst a larger part of a ledger is compared again.
  for await (const page of openablePages(eventLog, operatorStream, { from: 0 }))
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
