/** What RCPT is worth at the large providers. */
import { expect, test } from 'vitest'
import { providerOf } from '../../src/capabilities/email-validation/dns/mail-providers.ts'
import {
  acceptsEverything,
  providerRows,
  refusesUnknown,
} from '../../src/capabilities/email-validation/mailbox/providers.ts'

const exchanges: Readonly<Record<string, string>> = {
  google: 'gmail-smtp-in.l.google.com',
  microsoft: 'outlook-com.olc.protection.outlook.com',
  apple: 'mx01.mail.icloud.com',
  yahoo: 'mta5.am0.yahoodns.net',
}

test.each(providerRows)('$provider: RCPT $rcpt', ({ provider, rcpt, neverCatchAll, source }) => {
  const exchange = exchanges[provider] ?? ''
  expect(providerOf(exchange)).toBe(provider)
  expect(acceptsEverything([{ exchange, priority: 5 }])).toBe(rcpt === 'accepts_everything')
  expect(neverCatchAll.every(refusesUnknown)).toBe(true)
  expect(source).toMatch(/[a-z]+\.com\//)
})

test('a provider that is not listed is asked, and so is one that shares a domain with it', () => {
  const records = ['mta5.am0.yahoodns.net', 'mx.example.com'].map((exchange) => ({ exchange, priority: 1 }))
  expect(acceptsEverything(records)).toBe(false)
  expect(acceptsEverything([{ exchange: 'mx1.mail.yahoo.co.jp', priority: 1 }])).toBe(false)
  // No MX record, but an address.
  expect(acceptsEverything([])).toBe(false)
  expect(refusesUnknown('example.com')).toBe(false)
})
