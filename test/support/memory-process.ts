/** A process of the service, reduced to a client of a log in memory and its own ledger. */
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import type { LedgerCommand } from '../../src/ledger/command.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { ledgerLimits } from '../../src/ledger/write/options.ts'
import { logger } from './logger.ts'
import type { ClientFaults, MemoryEventLog } from './memory-event-log.ts'

export type MemoryProcess = Pick<Foundation, 'eventLog' | 'ledger' | 'pool'>

/** Read models without rows, so everything is read from the log. Only the database's clock can be read. */
export const noRows = {
  query: async (text: string) => ({ rows: text.includes('clock_timestamp') ? [{ now: new Date() }] : [] }),
} as unknown as Foundation['pool']

/** Tests ignore the answers of a process with faults, so its callers wait only 200 ms instead of ten seconds. */
export const memoryProcess = (
  log: MemoryEventLog,
  name: string,
  { faults, pool = noRows }: { readonly faults?: ClientFaults; readonly pool?: Foundation['pool'] } = {},
): MemoryProcess => {
  const eventLog: EventLog = log.client(name, faults)
  const ledger = createLedger({
    eventLog,
    snapshot: async () => null,
    logger,
    clock: { now: Date.now },
    limits: {
      ...ledgerLimits,
      retryPauseMs: 1,
      unknownRetryMs: 20,
      unavailableRetryMs: 20,
      callerWaitMaxMs: faults === undefined ? ledgerLimits.callerWaitMaxMs : 200,
    },
  })
  return { eventLog, ledger, pool }
}

/** A call that located an address, at the given price. */
export const pricedCall = ({
  requestId,
  price,
  keyId = 'Hq3Zk9Lw2Xc7Vb1N',
  atMs = Date.now(),
}: {
  readonly requestId: string
  readonly price: string
  readonly keyId?: string
  readonly atMs?: number
}): LedgerCommand => ({
  key: requestId,
  requestId,
  atMs,
  actor: `key:${keyId}`,
  kind: 'record',
  call: {
    keyId,
    capability: 'ip_lookup',
    outcome: 'answered',
    facts: { kind: 'ip_lookup', success: true, country_code: 'GB', address_hmac: 'x'.repeat(43) },
  },
  book: priceBookOf({
    ...defaultPriceBook,
    rules: defaultPriceBook.rules.map((rule) => (rule.sku === null ? rule : { ...rule, amount: price })),
  }),
})
