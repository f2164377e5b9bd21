/** What a reply to RCPT means at the largest mailbox providers. At other providers we ask about the mailbox and about a random recipient. */
import { providerOf } from '../dns/mail-providers.ts'
import type { MailboxEvidence, MxRecord } from '../evidence.ts'

type ProviderRow = {
  /** As in `mx.provider`. */
  readonly provider: string
  /**
   * `says`: RCPT is refused for missing mailboxes. `accepts_everything`: RCPT is always accepted, and mail is refused only after DATA, or not at
   * all.
   */
  readonly rcpt: 'says' | 'accepts_everything'
  /**
   * The provider's own domains that certainly refuse non-existent recipients, so that we need not ask about a random recipient. A wrong entry
   * would cause wrong charges. Customers' domains are not listed, because they may accept everything.
   */
  readonly neverCatchAll: readonly string[]
  readonly source: string
}

export const providerRows: readonly ProviderRow[] = [
  {
    provider: 'google',
    rcpt: 'says',
    neverCatchAll: ['gmail.com', 'googlemail.com'],
    source:
      'support.google.com/a/answer/3726730 (550 5.1.1, 452 4.2.2), github.com/zytzagoo/smtp-validate-email/issues/84 (2024-08)',
  },
  {
    provider: 'microsoft',
    rcpt: 'says',
    neverCatchAll: [],
    source:
      'github.com/AfterShip/email-verifier/issues/72 (550 5.5.0 for a missing mailbox, 452 4.5.3 for a second recipient in a ' +
      'transaction), github.com/sisimai/rb-sisimai/issues/77 (550 5.4.1 of Microsoft 365)',
  },
  {
    provider: 'apple',
    rcpt: 'says',
    neverCatchAll: [],
    source: 'github.com/ActiveCampaign/smtp-field-manual, iCloud (550 5.1.1 user does not exist)',
  },
  {
    provider: 'yahoo',
    rcpt: 'accepts_everything',
    neverCatchAll: [],
    source:
      'github.com/truemail-rb/truemail-go/issues/91 (2024-04-30: 250 to every recipient, a missing mailbox is refused after DATA), ' +
      'github.com/AfterShip/email-verifier/issues/57',
  },
  {
    provider: 'docomo',
    rcpt: 'says',
    neverCatchAll: [],
    source:
      'github.com/sisimai/go-sisimai/issues/64 (550 Unknown user at RCPT for a missing mailbox; after DATA for a mailbox that refuses the ' +
      'sender, until 2025-03-12; since then such mail is accepted), rhost/for-nttdocomo.go there (552 Too much mail data: full)',
  },
  {
    provider: 'naver',
    rcpt: 'says',
    neverCatchAll: [],
    source:
      'github.com/your-digital-rights/yourdigitalrights.org/issues/736 (2025-12: 550 5.1.1 No such user); that it comes at RCPT: ' +
      'stored public file, index 70145588860; 550 5.7.2 after DATA for a sender without SPF or DKIM: index 45289384780',
  },
]

const accepting = new Set(
  providerRows.filter(({ rcpt }) => rcpt === 'accepts_everything').map(({ provider }) => provider),
)
const strictDomains = new Set(providerRows.flatMap(({ neverCatchAll }) => neverCatchAll))

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
