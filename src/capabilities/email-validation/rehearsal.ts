import type { Rehearsal } from '../../call/form.ts'
import type { CompanyResult } from './contract.ts'
import { companyApplies, type EmailEvidence, type EmailFindings, verdictOf } from './decide.ts'
import type { ListEvidence, MailboxEvidence, MailboxOutcome, MxEvidence } from './evidence.ts'
import { type EmailInput, type EmailValidationParts, namedAddressOf } from './gather.ts'

/** The answers that test keys get (src/guides/testing.md, "Which e-mail address gets which answer?"). No server is contacted. */

/** A reserved domain (RFC 2606). The local part of an address at this domain determines the answer. */
const testDomain = 'mail.test'

const company: CompanyResult = {
  name: 'Example Works',
  legal_name: 'Example Works S.A.',
  domain: testDomain,
  website: `https://www.${testDomain}`,
  industry: 'Software',
  size_range: '11-50',
  employee_count: 42,
  founded_year: 2001,
  location: { locality: 'Luxembourg', region: 'Luxembourg', country: 'Luxembourg', country_code: 'LU' },
  profnet_url: null,
  logo_url: null,
  source: 'test',
  source_updated_at: '2026-01-01T00:00:00.000Z',
}

const records = [{ exchange: `mx.${testDomain}`, priority: 10 }]
const mailServer: MxEvidence = {
  kind: 'found',
  implicit: false,
  records,
  provider: null,
  // This address is reserved for documentation (RFC 5737).
  targets: [{ exchange: `mx.${testDomain}`, addresses: ['192.0.2.25'] }],
}

/** Local parts that select an answer about the domain's mail servers. */
const mxOf: Readonly<Record<string, MxEvidence>> = {
  domain_not_found: { kind: 'domain_not_found' },
  null_mx: { kind: 'null_mx' },
  no_mail_server: { kind: 'no_mail_server' },
  mx_unroutable: { kind: 'unroutable', implicit: false, records, provider: null },
  dns_error: { kind: 'dns_error', code: 'ESERVFAIL' },
}

const askAgainSeconds = 300

const replies: Readonly<Record<MailboxOutcome, readonly [code: number | null, enhancedCode: string | null]>> =
  {
    accepted: [250, '2.1.5'],
    mailbox_not_found: [550, '5.1.1'],
    mailbox_disabled: [550, '5.2.1'],
    mailbox_full: [452, '4.2.2'],
    greylisted: [451, '4.7.1'],
    temporary_failure: [451, '4.3.0'],
    cannot_verify: [252, null],
    blocked: [554, '5.7.1'],
    smtputf8_unsupported: [null, null],
    no_connect: [null, null],
    timeout: [null, null],
  }

const later: readonly MailboxOutcome[] = ['greylisted', 'temporary_failure', 'no_connect', 'timeout']

const mailboxOf = (outcome: MailboxOutcome, catchAll: boolean | null = null): MailboxEvidence => {
  const [code, enhancedCode] = replies[outcome]
  const retryAfterSeconds = later.includes(outcome) ? askAgainSeconds : null
  return { outcome, connected: outcome !== 'no_connect', catchAll, code, enhancedCode, retryAfterSeconds }
}

const mailboxNamed = (word: string): MailboxEvidence | null => {
  switch (word) {
    case 'probe_not_supported':
      return null
    case 'catch_all':
      return mailboxOf('accepted', true)
    case 'catch_all_undetermined':
      return mailboxOf('accepted', null)
    default:
      return isOutcome(word)
        ? mailboxOf(word, word === 'accepted' ? false : null)
        : mailboxOf('accepted', false)
  }
}

const isOutcome = (word: string): word is MailboxOutcome => Object.hasOwn(replies, word)

/** The local part without its tag, so that many addresses can have the same answer. */
const wordOf = ({ parsed }: EmailInput): string | null =>
  parsed.valid && parsed.address.asciiDomain === testDomain
    ? (parsed.address.localPart.toLowerCase().split('+')[0] ?? '')
    : null

const evidenceOf = (word: string, { parsed, lists }: EmailInput): EmailEvidence => {
  const known: ListEvidence | null = lists && {
    ...lists,
    registrableDomain: testDomain,
    routable: word !== 'domain_not_routable',
    disposable: word === 'disposable',
  }
  const reached = known?.routable === true
  const mx = reached ? (Object.hasOwn(mxOf, word) ? (mxOf[word] ?? null) : mailServer) : null
  const asked = mx?.kind === 'found' && known?.disposable !== true
  return { parsed, lists: known, mx, disposableExchange: false, mailbox: asked ? mailboxNamed(word) : null }
}

/** The evidence for any other domain: only the text and the lists matter, and every mailbox exists. */
const elsewhere = ({ parsed, lists }: EmailInput): EmailEvidence => {
  const reached = parsed.valid && !parsed.address.domainLiteral && lists?.routable === true
  const mailbox = reached && !lists.disposable ? mailboxOf('accepted', false) : null
  return { parsed, lists, mx: reached ? mailServer : null, disposableExchange: false, mailbox }
}

const withoutCompany = 'company_not_found'

export const rehearsal = ({
  secrets,
}: Pick<EmailValidationParts, 'secrets'>): Rehearsal<EmailInput, EmailFindings> => ({
  asked: wordOf,
  gather: (input, { word, atMs }) => {
    const evidence = word === null ? elsewhere(input) : evidenceOf(word, input)
    const enriched =
      input.companyRequested &&
      word !== null &&
      word !== withoutCompany &&
      companyApplies(evidence.lists, verdictOf(evidence))
    return {
      ...evidence,
      addressHmac: secrets.addressHmac(namedAddressOf(input)),
      company: enriched ? company : null,
      checkedAt: new Date(atMs).toISOString(),
      cached: false,
    } satisfies EmailFindings
  },
})
