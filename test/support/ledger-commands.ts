/** Commands for one organization's ledger: opening it, and calls that cost one credit each, all in the same hour. */
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { CallToRecord, Envelope, Instruction } from '../../src/ledger/command.ts'
import type { Ledger } from '../../src/ledger/write/ledger.ts'

export const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
export const stream = ledgerStream(org)
export const keyId = 'K9abcdefghijklmn'
export const atMs = Date.parse('2026-03-01T12:00:00.000Z')
export const book = priceBookOf(defaultPriceBook)
export const located = {
  kind: 'ip_lookup',
  success: true,
  country_code: 'AT',
  address_hmac: 'A'.repeat(43),
} as const satisfies CallFacts

/** A look-up of an IP address that was located, or not. */
export const lookUp = (success = true): CallToRecord => ({
  keyId,
  capability: 'ip_lookup',
  outcome: 'answered',
  facts: success ? located : { ...located, success, country_code: null },
})

/** A command that belongs to a request. The request id equals the key. */
export const command = <Asked extends Instruction>(
  key: string,
  asked: Asked,
  more: Partial<Envelope> = {},
) => ({
  key,
  atMs,
  actor: 'system',
  requestId: key.slice(0, 64),
  ...asked,
  ...more,
})

/** A call that costs one credit if the IP address was located. */
export const call = (key: string, more: Partial<Envelope> = {}, facts: CallFacts = located) =>
  command(key, { kind: 'record', call: { ...lookUp(), facts }, book }, more)

/** A command that grants credits without an expiry. */
export const grantOf = (credits: string) =>
  ({ kind: 'grant', amount: parseCredits(credits), priority: 100, expiresAt: null, reason: 'test' }) as const

export const registration = { kind: 'register', name: 'Example', overdraftLimit: 0n } as const

/** Opens the organization with this many credits, as the events of revisions 0 and 1. */
export const openLedger = async (ledger: Pick<Ledger, 'submit'>, credits: string): Promise<void> => {
  await ledger.submit(org, command('register', registration))
  await ledger.submit(org, command('grant', grantOf(credits)))
}
