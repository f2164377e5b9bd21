/** The reliability of RCPT replies at large providers. */
import { expect, test } from 'vitest'
import { providerOf } from '../../src/capabilities/email-validation/dns/mail-providers.ts'
import {
  acceptsEverything,
  refusesUnknown,
} from '../../src/capabilities/email-validation/mailbox/providers.ts'
import {
  catchAllOf,
  classifyReply,
} from '../../src/capabilities/email-validation/mailbox/replies/classify.ts'
import { createReplyParser } from '../../src/capabilities/email-validation/mailbox/smtp/reply.ts'

test.each([
  ['google', 'gmail-smtp-in.l.google.com', false],
  ['microsoft', 'outlook-com.olc.protection.outlook.com', false],
  ['apple', 'mx01.mail.icloud.com', false],
  ['yahoo', 'mta5.am0.yahoodns.net', true],
  ['docomo', 'mfsmax.docomo.ne.jp', false],
  ['naver', 'mx1.naver.com', false],
])('%s, %s, accepts everything: %s', (provider, exchange, all) => {
  expect(providerOf(exchange)).toBe(provider)
  expect(acceptsEverything([{ exchange, priority: 5 }])).toBe(all)
})

test("Gmail's own domains refuse unknown recipients", () => {
  expect(['gmail.com', 'googlemail.com'].every(refusesUnknown)).toBe(true)
})

test.each([
  ['550 Unknown user x@docomo.example', 'mailbox_not_found', false],
  ['552 Too much mail data x@docomo.example', 'mailbox_full', null],
  ['552 Too many recipients', 'blocked', null],
  [
    '550 5.1.1 No such user. For more information, go to https://help.naver.com/x a-b - nsmtp',
    'mailbox_not_found',
    false,
  ],
  ['550 5.7.2 Your email has been blocked because the sender is unauthenticated - nsmtp', 'blocked', null],
  ['421 4.3.2 Your IP(192.0.2.7) is filtered and this connection will be closed', 'temporary_failure', null],
])(
  'Docomo and Naver, %s: %s; the same refusal of a random recipient shows that the server knows its mailboxes: %s',
  (text, outcome, catchAll) => {
    const [reply] = createReplyParser().push(Buffer.from(`${text}\r\n`))
    if (reply === undefined) throw new Error('no reply')
    expect(classifyReply('rcpt', reply).outcome).toBe(outcome)
    expect(catchAllOf(reply)).toBe(catchAll)
  },
)

test('an unlisted provider is asked, and so is one that shares a domain with it', () => {
  const records = ['mta5.am0.yahoodns.net', 'mx.example.com'].map((exchange) => ({ exchange, priority: 1 }))
  expect(acceptsEverything(records)).toBe(false)
  expect(acceptsEverything([{ exchange: 'mx1.mail.yahoo.co.jp', priority: 1 }])).toBe(false)
  // This domain has an address but no MX record.
  expect(acceptsEverything([])).toBe(false)
  expect(refusesUnknown('example.com')).toBe(false)
})
