/**
 * The rules that classify replies. The first matching rule decides. Each rule quotes the reply for which it was written. A comment gives the
 * source, unless the tests contain the reply with its source.
 *
 * A mailbox counts as missing only if the reply states this. Rules about our client come before rules about the mailbox, because servers
 * refuse clients with any code. Only a reply that explicitly names an unknown mailbox takes precedence over 5.7.x.
 */
import type { MailboxOutcome } from '../../evidence.ts'
import type { Sense } from './words.ts'

export type SmtpStage = 'greeting' | 'ehlo' | 'mail' | 'rcpt'

export type ReplyRule = {
  readonly outcome: MailboxOutcome
  /** If absent, the rule applies to RCPT. */
  readonly stages?: readonly SmtpStage[]
  /** Prefixes of reply codes, such as `55`. */
  readonly codes: readonly string[]
  /**
   * Prefixes of enhanced codes without their class, such as `1.1` or `7.`; an empty text matches a reply without an enhanced code. If absent, any
   * code matches.
   */
  readonly enhanced?: readonly string[]
  /** The reply must have all of these meanings. */
  readonly says?: readonly Sense[]
  /** The reply must have none of these meanings. */
  readonly unless?: readonly Sense[]
  /**
   * Set if the reply does not clearly state that the mailbox is missing, so that the reply does not prove that the server checks recipients.
   */
  readonly vague?: true
  /** The delay before the next attempt, if the reply states none. */
  readonly retrySeconds?: number
  readonly example: string
}

/** Greylists usually accept a second attempt after 5 minutes (Postgrey's default). */
const greylistedSeconds = 300
const temporarySeconds = 900

const anyStage = ['greeting', 'ehlo', 'mail', 'rcpt'] as const
/** Codes that mean "other", so that only the text has a meaning. */
const open = ['', '0.0', '1.0', '2.0', '3.0', '5.0'] as const

export const replyRules: readonly ReplyRule[] = [
  {
    outcome: 'smtputf8_unsupported',
    codes: ['5'],
    enhanced: ['6.7'],
    stages: ['mail', 'rcpt'],
    // From RFC 6531 §3.5.
    example: '553 5.6.7 The address must be ASCII, for the next server takes no other',
  },
  {
    outcome: 'greylisted',
    stages: ['mail', 'rcpt'],
    codes: ['4'],
    says: ['greylist'],
    retrySeconds: greylistedSeconds,
    // From github.com/schweikert/postgrey/issues/86.
    example: '450 4.2.0 <x@example.com>: Recipient address rejected: Greylisted for 300 seconds',
  },
  {
    outcome: 'mailbox_not_found',
    codes: ['450'],
    enhanced: ['1.1'],
    says: ['verified_elsewhere', 'missing'],
    unless: ['client', 'policy', 'passing', 'full', 'elsewhere'],
    // From postfix.org, postconf(5), unverified_recipient_reject_code.
    example:
      '450 4.1.1 <x@example.com>: Recipient address rejected: undeliverable address: unknown user: "x@example.com"',
  },
  {
    outcome: 'mailbox_full',
    codes: ['4'],
    enhanced: ['2.2'],
    unless: ['come_back', 'other_limit'],
    example: '452 4.2.2 The email account that you tried to reach is over quota.',
  },
  {
    outcome: 'mailbox_full',
    codes: ['4'],
    enhanced: ['', '2.0'],
    says: ['full'],
    unless: ['other_limit', 'missing', 'client'],
    example: '451 Mailbox quota exceeded',
  },
  {
    outcome: 'greylisted',
    stages: ['mail', 'rcpt'],
    codes: ['450'],
    enhanced: ['2.0'],
    unless: ['client', 'policy', 'full', 'other_limit'],
    retrySeconds: greylistedSeconds,
    // From github.com/ActiveCampaign/smtp-field-manual.
    example: '450 4.2.0 <x@comcast.net> - Recipient temporarily unavailable',
  },
  {
    outcome: 'greylisted',
    stages: ['mail', 'rcpt'],
    codes: ['450', '451'],
    enhanced: ['7.1'],
    says: ['come_back'],
    unless: ['client', 'policy', 'full', 'other_limit'],
    retrySeconds: greylistedSeconds,
    example: '451 4.7.1 Try again later',
  },
  {
    outcome: 'temporary_failure',
    stages: anyStage,
    codes: ['4'],
    retrySeconds: temporarySeconds,
    example: '421 4.7.0 [TSS04] Messages from 192.0.2.7 temporarily deferred due to user complaints',
  },
  {
    outcome: 'blocked',
    stages: ['greeting', 'ehlo', 'mail'],
    codes: ['5'],
    // From github.com/EDSM-NET/FrontEnd/issues/21.
    example: '554-gmx.net (mxgmx017) Nemesis ESMTP Service not available\r\n554 No SMTP service',
  },
  {
    outcome: 'accepted',
    codes: ['250', '251'],
    example: '250 2.1.5 Recipient OK',
  },
  {
    outcome: 'cannot_verify',
    codes: ['5'],
    says: ['busy'],
    example:
      '550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents additional messages from being delivered.',
  },
  {
    outcome: 'mailbox_full',
    codes: ['5'],
    enhanced: ['', '0.', '1.', '2.', '3.0', '4.', '5.'],
    says: ['full'],
    unless: ['other_limit'],
    // From github.com/ActiveCampaign/smtp-field-manual.
    example: '552 5.1.1 hibJumn68I371 Boite du destinataire pleine. Recipient overquota. OFR_417 [417]',
  },
  {
    outcome: 'blocked',
    codes: ['5'],
    says: ['client'],
    // From github.com/sisimai/p5-sisimai/issues/236.
    example: '550 5.1.1 <x@example.com>  - 192.0.2.0 has sent to too many recipients this hour. IB607',
  },
  {
    outcome: 'blocked',
    codes: ['5'],
    enhanced: ['1.7', '1.8'],
    example: '554 5.1.8 DNS-P3 http://postmaster.facebook.com/response_codes?ip=192.0.2.7#dns',
  },
  {
    outcome: 'mailbox_full',
    codes: ['5'],
    enhanced: ['2.2'],
    example:
      "552 5.2.2 This message is larger than the current system limit or the recipient's mailbox is full. Create a shorter message body or remove attachments and try sending it again.",
  },
  // A reply that mentions something temporary never proves that a mailbox no longer exists.
  {
    outcome: 'blocked',
    codes: ['5'],
    enhanced: ['7.'],
    says: ['passing'],
    example:
      '553 5.7.2 [TSS09] All messages from 192.0.2.7 will be permanently deferred; Retrying will NOT succeed.',
  },
  {
    outcome: 'blocked',
    codes: ['5'],
    says: ['policy', 'passing'],
    example:
      '550 mwinf5c10 ME Service refuse. Veuillez essayer plus tard. Service refused, please try later. OFR006_103',
  },
  {
    outcome: 'cannot_verify',
    codes: ['5'],
    says: ['passing'],
    example:
      '550-Requested action not taken: mailbox unavailable\r\n550 Failure sending mail. Try again later',
  },
  {
    outcome: 'cannot_verify',
    codes: ['5'],
    says: ['elsewhere'],
    example:
      '550 5.1.1 <x@example.com>: Recipient address rejected: undeliverable address: mail for example.com loops back to myself',
  },
  // 5.1.3 means that the server does not understand the address, not that the mailbox is missing.
  {
    outcome: 'cannot_verify',
    codes: ['5'],
    enhanced: ['1.3'],
    example: '501 5.1.3 Invalid address [outlook.com]',
  },
  {
    outcome: 'mailbox_disabled',
    codes: ['525'],
    says: ['closed'],
    example: '525 5.7.13 Disabled recipient address',
  },
  {
    outcome: 'mailbox_not_found',
    codes: ['55'],
    enhanced: ['4.1'],
    says: ['edge_blocking'],
    // From github.com/sisimai/rb-sisimai/issues/77.
    example: '550 5.4.1 [x@example.com]: Recipient address rejected: Access denied [example.com]',
  },
  {
    outcome: 'mailbox_not_found',
    codes: ['5'],
    enhanced: ['1.1', '1.6', '1.10'],
    says: ['missing'],
    example: '550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup',
  },
  {
    outcome: 'mailbox_disabled',
    codes: ['5'],
    enhanced: ['', '0.', '1.', '2.', '3.', '5.', '7.'],
    says: ['closed'],
    unless: ['policy', 'come_back'],
    // From github.com/ActiveCampaign/smtp-field-manual.
    example:
      '554 delivery error: dd Sorry, your message to x@example.com cannot be delivered. This mailbox is disabled (554.30).',
  },
  {
    outcome: 'mailbox_not_found',
    codes: ['5'],
    enhanced: ['7.'],
    says: ['missing'],
    unless: ['policy'],
    example: '550 5.7.1 No such user!',
  },
  {
    outcome: 'mailbox_not_found',
    // 501 is not included, because it means that the server does not understand the address.
    codes: ['500', '51', '52', '54', '55', '57'],
    // 5.5.1 is not included, because it is about a command.
    enhanced: ['', '0.', '1.', '2.', '3.', '5.0', '5.2', '5.3', '5.4'],
    says: ['missing'],
    example: '552 1 Requested mail action aborted, mailbox not found',
  },
  {
    outcome: 'blocked',
    codes: ['5'],
    says: ['policy'],
    example:
      '550 5.1.1 RCP-P2 http://postmaster.facebook.com/response_codes?ip=192.0.2.135#rcp Refused due to recipient preferences',
  },
  {
    outcome: 'blocked',
    codes: ['5'],
    enhanced: ['7.'],
    example: '554 5.7.9 Header error',
  },
  {
    outcome: 'mailbox_not_found',
    codes: ['550', '551', '552', '553'],
    enhanced: [...open, '1.1'],
    says: ['unavailable'],
    example: '550 5.5.0 Requested action not taken: mailbox unavailable.',
  },
  {
    outcome: 'mailbox_not_found',
    codes: ['5'],
    enhanced: ['1.1', '1.6', '1.10'],
    says: ['named'],
    unless: ['foreign'],
    vague: true,
    // From github.com/sisimai/p5-sisimai/issues/409.
    example: '550 5.1.1 <xxx.xxx@example.com>: Recipient address rejected: xxx.xxx',
  },
  {
    outcome: 'mailbox_not_found',
    codes: ['550', '551', '552', '553'],
    enhanced: open,
    says: ['refused'],
    vague: true,
    // From github.com/customeros/mailsherpa/issues/19.
    example: '550 5.1.0 Address rejected.',
  },
  {
    outcome: 'cannot_verify',
    stages: anyStage,
    codes: ['2', '3', '5'],
    example: '553 5.3.0 192.0.2.7 Rejected - see http://www.spamhaus.org',
  },
]
