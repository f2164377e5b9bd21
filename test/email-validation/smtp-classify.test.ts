/** Every reply we know of, and what it says about a mailbox: by enhanced code, then reply code, then text. */
import { describe, expect, test } from 'vitest'
import type { MailboxOutcome } from '../../src/capabilities/email-validation/evidence.ts'
import {
  catchAllOf,
  classifyReply,
  refusesClient,
  type SmtpStage,
} from '../../src/capabilities/email-validation/mailbox/smtp-classify.ts'
import {
  createReplyParser,
  type SmtpReply,
} from '../../src/capabilities/email-validation/mailbox/smtp-reply.ts'

const replyOf = (text: string): SmtpReply => {
  const [reply] = createReplyParser().push(Buffer.from(`${text}\r\n`))
  if (reply === undefined) throw new Error('no reply')
  return reply
}

describe('at RCPT', () => {
  const table: Record<MailboxOutcome, readonly string[]> = {
    accepted: ['250 ok', '250 2.1.5 Recipient OK', '251 User not local; will forward'],
    mailbox_not_found: [
      '550 5.1.1 The email account that you tried to reach does not exist.',
      '550-5.1.1 The email account does not exist. Please try\r\n550-5.1.1 double-checking\r\n550 5.1.1 https://support.example/p=NoSuchUser abc',
      '550 5.1.1 <blocked@spamhaus.example>: Recipient address rejected: User unknown in local recipient table',
      '550 5.1.1 sender verify failed policy',
      '550 5.1.2 Bad destination system',
      '501 5.1.3 Bad recipient address syntax',
      '550 5.1.6 Mailbox has moved',
      '550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup',
      '550 #5.1.0 Address rejected.',
      '550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).',
      '550 5.4.1 Recipient address rejected: Access denied. [PROD.example 2026]',
      '550 No such user here',
      '550 <policy@example.com> No such user here',
      '550 Unknown user spam-reputation@example.com',
      '550 Requested action not taken: mailbox unavailable',
      '551 User not local; please try <forward@example.com>',
      '553 sorry, no mailbox here by that name (#5.1.1)',
      '553 Mailbox name invalid',
      '550',
      '550 5.0.0 User unknown',
      // Postfix
      '550 5.1.1 <x@example.com>: Recipient address rejected: User unknown in virtual mailbox table',
      '550 5.1.1 <x@example.com>: Recipient address rejected: User unknown in relay recipient table',
      '550 5.1.1 <x@example.com>: Recipient address rejected: undeliverable address: host mx.example.com[192.0.2.1] said: 550 No such user (in reply to RCPT TO command)',
      // Exim
      '550 Unrouteable address',
      '550 No Such User Here',
      '550 unknown user',
      '550 Recipient verify failed',
      // Exchange
      '550 5.1.1 User unknown',
      '550 5.1.1 RESOLVER.ADR.RecipNotFound; not found',
      '550 5.1.10 <x@example.com>: Recipient not found by SMTP address lookup',
      '550 5.1.1 mailbox unavailable',
      '550 mailbox unavailable',
      // Gmail
      "550-5.1.1 The email account that you tried to reach does not exist. Please try\r\n550-5.1.1 double-checking the recipient's email address for typos or\r\n550-5.1.1 unnecessary spaces. For more information, go to\r\n550 5.1.1  https://support.google.com/mail/?p=NoSuchUser abc.123 - gsmtp",
      // Sendmail
      '550 5.1.1 <x@example.com>... User unknown',
      '553 5.1.3 <x@example.com>... User address required',
      '550 <x@example.com>... Host unknown (Name server: example.com.: no data known)',
      // qmail, and what is built on it
      '550 sorry, no mailbox here by that name. (#5.1.1)',
      '553 sorry, no mailbox here by that name',
      '550 sorry, no such mailbox here',
      // Others
      '550 Message was not accepted -- invalid mailbox. Local mailbox x@example.com is unavailable: user not found',
      '550 User not found: x@example.com',
      '550 Recipient Rejected: No account by that name here',
      '550 5.1.1 Not our Customer',
      '550 Invalid recipient',
      '550 no such user on this host',
    ],
    mailbox_disabled: [
      '550 5.2.1 The email account that you tried to reach is disabled.',
      '554 5.2.1 Mailbox unavailable',
      '550 This account has been suspended',
    ],
    mailbox_full: [
      '552 5.2.2 The email account is over quota',
      '550 5.2.2 mailbox full',
      '452 4.2.2 The email account is over quota',
      '450 4.2.2 full',
      '552 Requested mail action aborted: exceeded storage allocation',
      '452 mailbox full',
      '452 4.3.1 quota exceeded',
      '550 Quota exceeded',
    ],
    greylisted: [
      '450 4.2.0 <x@example.com>: Recipient address rejected: Greylisted, see http://postgrey.example/help.html',
      '450 4.2.0 x',
      '451 4.7.1 Greylisting in action, please come back later',
      '451 4.7.1 Please try again later',
      '450 4.7.1 Try again in 300 seconds',
      '451 Temporarily greylisted',
      '450 Graylisted for 5 minutes',
    ],
    temporary_failure: [
      '421 4.7.0 Our system has detected an unusual rate',
      '421 Service not available',
      '450 4.1.1 Recipient address rejected: unverified address: Address verification in progress',
      '450 4.7.1 Client host rejected: cannot find your reverse hostname, try again later',
      '450 4.2.0 Your IP address is throttled',
      '451 4.3.0 Temporary lookup failure',
      '451 4.7.650 The mail server has been temporarily rate limited due to IP reputation, try again later',
      '452 4.5.3 Too many recipients',
      '452 4.3.1 Insufficient system storage',
      '452 too many recipients',
      '454 4.7.1 Relay access denied',
    ],
    cannot_verify: [
      '252 2.1.5 Cannot VRFY user, but will accept message',
      '354 go ahead',
      '220 hello',
      '503 5.5.1 MAIL first',
      '500 unrecognized',
      '550 5.3.0 Other mail system status',
      '550 5.4.4 Unable to route',
      '550 mailbox temporarily unavailable',
      '550 4.2.0 x, try again later',
      '554 delivery error: no such user',
      '550 5.1.4 ambiguous',
      '550-5.2.1 The user you are trying to contact is receiving mail at a rate that\r\n550-5.2.1 prevents additional messages from being delivered.\r\n550 5.2.1 https://support.google.com/mail/?p=ReceivingRatePerm abc - gsmtp',
      '550 5.2.1 The user you are trying to contact is receiving mail too quickly.',
      '550 System error',
      '550 Internal error',
      '550 Internal server error',
      '550 Backend unavailable',
      '550 Service unavailable',
      '550 Service is currently unavailable',
      '550 unable to verify user',
      '550 Cannot verify recipient',
      "550 Can't verify user",
      '550 Could not verify recipient',
      '550 The recipient could not be verified',
      '553 user lookup failure',
    ],
    blocked: [
      '550 5.7.1 Service unavailable, Client host [192.0.2.1] blocked using Spamhaus',
      '554 5.7.1 <x@example.com>: Relay access denied',
      '550 5.7.606 Access denied, banned sending IP',
      '550 5.7.1 No such user',
      '554 5.7.1 Recipient unknown',
      '553 5.1.7 sender address is not well-formed',
      '550 5.1.8 sender domain not found',
      '530 5.7.0 Must issue a STARTTLS command first',
      '530 Authentication required',
      '550 Blocked - see https://www.spamhaus.org/query/ip/192.0.2.1',
      '550 Your IP is blacklisted',
      '550 JunkMail rejected - listed in an RBL',
      '550 Message rejected due to bad reputation',
      '550 rejected because of local policy',
      '550 No reverse DNS for your host',
      '550 cannot find PTR record',
      '550 authentication required',
      '550 relay not permitted',
      '550 unable to relay',
      "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)",
      "553 sorry, that domain isn't in my list of allowed rcpthosts",
      '550 Sender verify failed',
      '550 Access denied',
      '550 Administrative prohibition',
      '550 Greylisted',
      '554 Email rejected due to security policies',
      '550 too many invalid recipients',
      '550-Verification failed for <probe@example.net>\r\n550-No Such User Here\r\n550 Sender verify failed',
      '571 Delivery not authorized',
      '550 5.1.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org',
      '550 5.1.1 <x@example.com>: Recipient address rejected: undeliverable address: host mx.example.com[192.0.2.1] said: 550 Service unavailable; Client host [192.0.2.2] blocked using a list (in reply to RCPT TO command)',
      '550 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org',
      '550 Connections from this host are not accepted',
      '550 We do not accept mail from you',
      '550 This server does not accept any mail from there',
      '550 Mail rejected',
      '550 Message rejected',
      '550 E-mail was rejected',
      '550 Maximum connections reached',
      '550 Daily limit reached',
      '550 maximum number of recipients reached',
      '550 null envelope refused',
      '550 Mail from null sender refused',
      '550 bounces not accepted here',
      '550 callout refused',
      '550 This server does not accept callbacks',
      '550 Access rejected',
      '550 Suspicious activity',
    ],
    smtputf8_unsupported: ['550 5.6.7 Non-ASCII addresses not permitted', '553 5.6.7 x'],
    no_connect: [],
    timeout: [],
  }
  const rows = Object.entries(table).flatMap(([outcome, replies]) =>
    replies.map((reply) => [reply, outcome] as const),
  )

  test.each(rows)('%s: %s', (text, outcome) => {
    expect(classifyReply('rcpt', replyOf(text)).outcome).toBe(outcome)
  })

  test('no text ever makes a 5.7.x refusal a missing mailbox', () => {
    for (const text of table.mailbox_not_found.map((line) => line.replace(/^\d{3}[ -]?(#?5\.\d+\.\d+)?/, '')))
      expect(classifyReply('rcpt', replyOf(`550 5.7.1 ${text.split('\r\n')[0]}`)).outcome).toBe('blocked')
  })
})

describe('before RCPT', () => {
  const table: readonly [SmtpStage, string, MailboxOutcome][] = [
    ['greeting', '554 5.7.1 no', 'blocked'],
    ['greeting', '550 5.1.1 no such user', 'blocked'],
    ['greeting', '421 4.3.2 busy', 'temporary_failure'],
    ['greeting', '250 what', 'cannot_verify'],
    ['ehlo', '550 bad HELO', 'blocked'],
    ['ehlo', '451 4.3.0 later', 'temporary_failure'],
    ['mail', '550 5.1.1 unknown', 'blocked'],
    ['mail', '552 5.2.2 over quota', 'blocked'],
    ['mail', '452 4.2.2 over quota', 'temporary_failure'],
    ['mail', '452 4.3.1 quota', 'temporary_failure'],
    ['mail', '451 4.7.1 Greylisted', 'greylisted'],
    ['mail', '553 5.6.7 no', 'smtputf8_unsupported'],
  ]
  test.each(table)('%s, %s: %s', (stage, text, outcome) => {
    expect(classifyReply(stage, replyOf(text)).outcome).toBe(outcome)
  })
})

test.each([
  ['450 4.2.0 Greylisted', 300],
  ['451 4.7.1 Greylisted, try again in 5 minutes', 300],
  ['451 4.7.1 Greylisted, try again in 120 seconds', 120],
  ['451 4.7.1 Greylisting in action, please come back in 00:02:00', 120],
  ['451 4.7.1 greylisted for 5 seconds', 60],
  ['451 4.7.1 greylisted, wait 99999 minutes', 900],
  ['451 4.3.0 x', 900],
  ['451 4.3.0 try in 90 s', 90],
  ['550 5.1.1 try again in 5 minutes', null],
  ['452 4.2.2 try again in 5 minutes', null],
] as const)('%s: ask again after %s seconds', (text, seconds) => {
  expect(classifyReply('rcpt', replyOf(text)).retryAfterSeconds).toBe(seconds)
})

test.each([
  ['250 ok', true],
  ['251 will forward', true],
  ['550 5.1.1 no', false],
  ['550 no such user', false],
  ['550 <x@example.com>: Recipient address rejected', false],
  ['550 5.4.1 Recipient address rejected: Access denied.', false],
  ['550 Requested action not taken: mailbox unavailable', false],
  ['550 5.2.1 The account is disabled', false],
  // A refusal that says neither by code nor by text whom it is about is not one of a missing mailbox.
  ['550', null],
  ['550 Refused', null],
  ['550 5.0.0 Go away', null],
  ['550 5.2.1 disabled', null],
  ['550 5.1.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org', null],
  ['550 System error', null],
  ['550 Cannot verify recipient', null],
  ['550 maximum number of recipients reached', null],
  ['252 cannot verify', null],
  ['450 4.2.0 greylisted', null],
  ['452 4.5.3 too many recipients', null],
  ['550 5.7.1 policy', null],
  ['550 too many recipients', null],
  ['552 5.2.2 full', null],
] as const)('a random recipient answered with %s: catch-all %s', (text, expected) => {
  expect(catchAllOf(replyOf(text))).toBe(expected)
})

test.each<[SmtpStage, string, boolean]>([
  ['greeting', '421 busy', true],
  ['greeting', '450 not now', true],
  ['greeting', '554 no', true],
  ['mail', '550 no', true],
  ['mail', '451 later', false],
  ['rcpt', '421 bye', true],
  ['rcpt', '550 5.7.1 no', true],
  ['rcpt', '550 blacklisted', true],
  ['rcpt', '550 5.1.1 no', false],
  ['rcpt', '450 4.2.0 greylisted', false],
  ['rcpt', '250 ok', false],
])('%s, %s: it refuses us rather than one mailbox: %s', (stage, text, expected) => {
  expect(refusesClient(stage, replyOf(text))).toBe(expected)
})

test('a text of any length is classified in no time', () => {
  const lines = Array.from({ length: 60 }, () => `550-${'<a temporar account mailbox '.repeat(36)}`)
  const startedAt = performance.now()
  for (let i = 0; i < 100; i++) classifyReply('rcpt', replyOf([...lines, '550 end'].join('\r\n')))
  expect(performance.now() - startedAt).toBeLessThan(2_000)
})
