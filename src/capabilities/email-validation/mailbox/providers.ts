/**
 * The few providers whose replies to RCPT are known in advance. At other providers, we ask about the mailbox and about a random recipient.
 */
import { providerOf } from '../dns/mail-providers.ts'
import type { MailboxEvidence, MxRecord } from '../evidence.ts'

/**
 * Yahoo accepts every recipient at RCPT, and refuses a missing mailbox only after DATA (github.com/truemail-rb/truemail-go/issues/91, 2024-04-30;
 * github.com/AfterShip/email-verifier/issues/57).
 */
const accepting: ReadonlySet<string> = new Set(['yahoo'])

/**
 * Google's own domains are known to refuse unknown recipients (support.google.com/a/answer/3726730). A wrong entry would cause wrong charges.
 * Domains of Google's customers are not listed, because they may accept every recipient.
 */
const strictDomains: ReadonlySet<string> = new Set(['gmail.com', 'googlemail.com'])

/** Whether all of a domain's mail servers accept every recipient, so that asking them is useless. */
export const acceptsEverything = (records: readonly MxRecord[]): boolean =>
  records.length > 0 && records.every(({ exchange }) => accepting.has(providerOf(exchange) ?? ''))

/** Whether a domain is known to refuse recipients that do not exist, for all senders. */
export const refusesUnknown = (domain: string): boolean => strictDomains.has(domain)

/** The evidence for a mailbox at a provider that accepts everything, without asking a server. */
export const acceptedUnasked: MailboxEvidence = {
  outcome: 'accepted',
  connected: null,
  catchAll: null,
  code: null,
  enhancedCode: null,
  retryAfterSeconds: null,
}
