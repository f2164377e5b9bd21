import type { CallDecision } from '../../call/form.ts'
import type { CompanyStatus, EmailStatus } from '../../events/email-validation.ts'
import {
  type CompanyResult,
  type EmailRequest,
  type EmailValidationResult,
  emailCharactersMax,
} from './contract.ts'
import {
  isBusinessDomain,
  type ListEvidence,
  type MailboxEvidence,
  type MailboxOutcome,
  type MxEvidence,
  type ParsedEmail,
} from './evidence.ts'

/** The evidence behind a verdict. A field is null if its step was not reached. */
export type EmailEvidence = {
  readonly parsed: ParsedEmail
  readonly lists: ListEvidence | null
  readonly mx: MxEvidence | null
  /** True if a host used by disposable domains receives the domain's mail. */
  readonly disposableExchange: boolean
  /** Null if no mailbox was checked, for example because EMAIL_PROBE is off. */
  readonly mailbox: MailboxEvidence | null
}

export type EmailFindings = EmailEvidence & {
  readonly addressHmac: string
  readonly company: CompanyResult | null
  /** The time of the mailbox check, or of the call if there was no check. */
  readonly checkedAt: string
  readonly cached: boolean
}

/** A row of the decision table (src/guides/partners.md, "How is an address judged?"). The call's facts record `row`. */
type Verdict = {
  readonly row: number
  readonly status: EmailStatus
  readonly subStatus: string
  readonly score: number
}

const verdict = (row: number, status: EmailStatus, subStatus: string, score: number): Verdict => ({
  row,
  status,
  subStatus,
  score,
})

const roleBasedPenalty = 10
const disposableRow = 8

/** The first matching row decides. Only row 17 is `valid`. */
export const verdictOf = ({ parsed, lists, mx, disposableExchange, mailbox }: EmailEvidence): Verdict => {
  if (!parsed.valid) return verdict(1, 'invalid', 'invalid_syntax', 0)
  if (parsed.address.domainLiteral || lists?.routable !== true)
    return verdict(2, 'invalid', 'domain_not_routable', 0)
  switch (mx?.kind) {
    case 'domain_not_found':
      return verdict(3, 'invalid', 'domain_not_found', 0)
    case 'null_mx':
      return verdict(4, 'invalid', 'null_mx', 0)
    case 'no_mail_server':
      return verdict(5, 'invalid', 'no_mail_server', 0)
    case 'unroutable':
      return verdict(6, 'invalid', 'mx_unroutable', 0)
    case 'dns_error':
    case undefined:
      return verdict(7, 'unknown', 'dns_error', 40)
  }
  if (lists.disposable || disposableExchange) return verdict(disposableRow, 'risky', 'disposable', 10)
  if (mailbox === null) return verdict(9, 'unknown', 'probe_not_supported', 50)
  if (mailbox.outcome === 'accepted') return acceptedVerdict(mailbox.catchAll, lists.roleBased)
  const [row, status, subStatus, score] = mailboxRows[mailbox.outcome]
  return verdict(row, status, subStatus, score)
}

/** Rows 10 to 14: every server answer except acceptance. */
const mailboxRows = {
  no_connect: [10, 'unknown', 'no_connect', 40],
  timeout: [10, 'unknown', 'timeout', 40],
  mailbox_full: [11, 'risky', 'mailbox_full', 30],
  greylisted: [12, 'unknown', 'greylisted', 40],
  temporary_failure: [12, 'unknown', 'temporary_failure', 40],
  cannot_verify: [12, 'unknown', 'cannot_verify', 40],
  blocked: [13, 'unknown', 'blocked', 40],
  smtputf8_unsupported: [13, 'unknown', 'smtputf8_unsupported', 40],
  mailbox_not_found: [14, 'invalid', 'mailbox_not_found', 0],
  mailbox_disabled: [14, 'invalid', 'mailbox_disabled', 0],
} as const satisfies Record<
  Exclude<MailboxOutcome, 'accepted'>,
  readonly [row: number, status: EmailStatus, subStatus: string, score: number]
>

const acceptedVerdict = (catchAll: boolean | null, roleBased: boolean): Verdict => {
  if (catchAll === true) return verdict(15, 'risky', 'catch_all', 60)
  if (catchAll === null) return verdict(16, 'risky', 'catch_all_undetermined', 55)
  return verdict(17, 'valid', 'accepted', roleBased ? 95 - roleBasedPenalty : 95)
}

/**
 * A company is looked up if the mailbox's server gave a useful answer and the domain belongs to a business (decision 10). It is not looked up
 * for an unknown verdict, because partners then repeat the call and would pay for the same company each time.
 */
export const companyApplies = (lists: ListEvidence | null, { status, row }: Verdict): boolean =>
  (status === 'valid' || (status === 'risky' && row !== disposableRow)) &&
  lists !== null &&
  isBusinessDomain(lists)

/** Builds the answer and the recorded facts from the same evidence (Spec §4.1, decisions 9, 10 and 17). */
export const decide = (
  findings: EmailFindings,
  { email, companyRequested }: EmailRequest,
): CallDecision<EmailValidationResult> => {
  const { parsed, lists, company, mailbox } = findings
  const judged = verdictOf(findings)
  const address = parsed.valid ? parsed.address : null
  const companyStatus = companyStatusOf(companyRequested, companyApplies(lists, judged), company)
  return {
    result: {
      email: email.slice(0, emailCharactersMax),
      normalized: address?.normalized ?? null,
      local_part: address?.localPart ?? null,
      domain: address?.domain ?? null,
      ascii_domain: address?.asciiDomain ?? null,
      status: judged.status,
      sub_status: judged.subStatus,
      score: judged.score,
      did_you_mean: lists?.didYouMean ?? null,
      checks: checksOf(findings),
      company,
      company_status: companyStatus,
      billing: { billable: false, validation_credits: '0', company_credits: '0' },
      cached: findings.cached,
      checked_at: findings.checkedAt,
      retry_after: judged.status === 'unknown' ? (mailbox?.retryAfterSeconds ?? null) : null,
    },
    facts: {
      kind: 'email_validation',
      status: judged.status,
      sub_status: judged.subStatus,
      decision_row: judged.row,
      company_status: companyStatus,
      // An address literal is a person's IP address, so the event log contains only its HMAC.
      domain: address === null || address.domainLiteral ? null : address.asciiDomain,
      address_hmac: findings.addressHmac,
    },
  }
}

const companyStatusOf = (
  requested: boolean,
  applies: boolean,
  company: CompanyResult | null,
): CompanyStatus => {
  if (!requested) return 'not_requested'
  if (!applies) return 'not_applicable'
  return company === null ? 'not_found' : 'found'
}

const checksOf = ({
  parsed,
  lists,
  mx,
  disposableExchange,
  mailbox,
}: EmailEvidence): EmailValidationResult['checks'] => ({
  syntax: {
    valid: parsed.valid,
    reason: parsed.valid ? null : parsed.reason,
    smtputf8: parsed.valid ? parsed.address.smtputf8 : null,
    quoted: parsed.valid ? parsed.address.quoted : null,
    domain_literal: parsed.valid ? parsed.address.domainLiteral : null,
  },
  disposable: lists === null ? null : lists.disposable || disposableExchange,
  role_based: lists?.roleBased ?? null,
  free_provider: lists?.freeProvider ?? null,
  privacy_relay: lists?.privacyRelay ?? null,
  subaddress: lists?.subaddress ?? null,
  mx: mxCheckOf(mx),
  smtp: smtpCheckOf(mailbox),
})

type Checks = EmailValidationResult['checks']

const mxCheckOf = (mx: MxEvidence | null): Checks['mx'] => {
  if (mx === null || mx.kind === 'dns_error')
    return { found: null, null_mx: null, implicit: null, provider: null, records: [] }
  if (mx.kind === 'found' || mx.kind === 'unroutable')
    return {
      found: true,
      null_mx: false,
      implicit: mx.implicit,
      provider: mx.provider,
      records: mx.records.map(({ exchange, priority }) => ({ exchange, priority })),
    }
  return { found: false, null_mx: mx.kind === 'null_mx', implicit: false, provider: null, records: [] }
}

const notAttempted: Checks['smtp'] = {
  attempted: false,
  connected: null,
  deliverable: null,
  catch_all: null,
  mailbox_full: null,
  disabled: null,
  code: null,
  enhanced_code: null,
}

/** A server that refuses our connection gives no information about the mailbox. */
const smtpCheckOf = (mailbox: MailboxEvidence | null): Checks['smtp'] => {
  if (mailbox === null || mailbox.connected === null) return notAttempted
  const { outcome } = mailbox
  const known = outcome === 'accepted' || outcome === 'mailbox_not_found'
  return {
    attempted: true,
    connected: mailbox.connected,
    deliverable: known || outcome === 'mailbox_disabled' ? outcome === 'accepted' : null,
    catch_all: mailbox.catchAll,
    mailbox_full: outcome === 'mailbox_full' ? true : outcome === 'accepted' ? false : null,
    disabled: outcome === 'mailbox_disabled' ? true : outcome === 'accepted' ? false : null,
    code: mailbox.code,
    enhanced_code: mailbox.enhancedCode,
  }
}
