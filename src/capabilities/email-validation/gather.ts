import type { Logger } from 'pino'
import type { Caller, Unaffordable } from '../../call/form.ts'
import { within } from '../../concurrency/deadline.ts'
import type { EmailStatus, EmailValidationFacts } from '../../events/email-validation.ts'
import type { EpochSealer, Secrets } from '../../guard/secrets/secrets.ts'
import type { Companies } from './company/companies.ts'
import type { EmailRequest } from './contract.ts'
import { companyApplies, type EmailEvidence, type EmailFindings, verdictOf } from './decide.ts'
import type { MailExchangers } from './dns/mail-exchangers.ts'
import { isBusinessDomain, type MailboxEvidence } from './evidence.ts'
import { isDisposableExchange } from './lists/inspect.ts'
import type { MailboxChecks } from './mailbox/checks.ts'
import type { MailboxProbe } from './mailbox/probe/probe.ts'
import { acceptedUnasked, acceptsEverything } from './mailbox/providers.ts'
import type { AddressReading } from './read-address.ts'

export type EmailValidationParts = {
  readonly secrets: Secrets
  readonly sealer: EpochSealer
  readonly exchangers: Pick<MailExchangers, 'find'>
  /** Null if EMAIL_PROBE is off. */
  readonly mailbox: Pick<MailboxProbe, 'probe'> | null
  readonly checks: MailboxChecks
  readonly companies: Pick<Companies, 'find'>
  /** Schedules another check of a mailbox by `askAgain`, in any process that runs jobs. */
  readonly later: (sealed: string, options: { afterSeconds: number; key: string }) => Promise<void>
  readonly clock: { now(): number }
  readonly logger: Logger
  readonly observe?: EmailValidationObserver | undefined
}

/** Used by every call, so it must be cheap. */
export type EmailValidationObserver = {
  readonly verdict: (row: number, status: EmailStatus) => void
}

export type EmailInput = EmailRequest & AddressReading

/** The most expensive facts that the call can still establish, used to reserve credits. */
const dearest = (
  { parsed, lists, companyRequested }: EmailInput,
  open: EmailEvidence,
): EmailValidationFacts => ({
  kind: 'email_validation',
  ...(isWorthAsking(open)
    ? { status: 'valid', sub_status: 'accepted', decision_row: 17 }
    : { status: 'risky', sub_status: 'catch_all_undetermined', decision_row: 16 }),
  company_status: companyRequested && lists !== null && isBusinessDomain(lists) ? 'found' : 'not_requested',
  domain: parsed.valid ? parsed.address.asciiDomain : null,
  address_hmac: '',
})

const queueMaxMs = 1_000

/** The text whose HMAC identifies an address in facts: normalized, in lower case. */
export const namedAddressOf = (input: Pick<AddressReading, 'parsed' | 'meant'>): string =>
  (input.parsed.valid ? input.parsed.address.normalized : input.meant).toLowerCase()

type MailboxFinding = {
  readonly evidence: MailboxEvidence
  readonly checkedAt: string
  readonly cached: boolean
}

export const gather = async (
  parts: EmailValidationParts,
  input: EmailInput,
  caller: Caller,
): Promise<EmailFindings | Unaffordable> => {
  const addressHmac = parts.secrets.addressHmac(namedAddressOf(input))
  const nowText = (): string => new Date(parts.clock.now()).toISOString()
  const open = await gatherDomain(parts, input)
  const asking = mailboxDecides(open) && parts.mailbox !== null
  // A refusal for lack of credits after the mailbox check would reveal for free that the mailbox exists.
  const unaffordable = asking ? await caller.reserve(dearest(input, open)) : null
  if (unaffordable !== null) return unaffordable
  const finding = asking ? await askMailbox(parts, open, caller) : null
  const evidence: EmailEvidence = { ...open, mailbox: finding?.evidence ?? null }
  const domain = evidence.lists?.registrableDomain ?? null
  const judged = verdictOf(evidence)
  // Credits for a company are reserved only if a mailbox is checked, because only then is a company looked up.
  const enriching =
    asking && input.companyRequested && domain !== null && companyApplies(evidence.lists, judged)
  const company = enriching ? await parts.companies.find(domain) : null
  parts.observe?.verdict(judged.row, judged.status)
  return {
    ...evidence,
    addressHmac,
    company,
    checkedAt: finding?.checkedAt ?? nowText(),
    cached: finding?.cached ?? false,
  }
}

const gatherDomain = async (
  { exchangers }: EmailValidationParts,
  { parsed, lists }: EmailInput,
): Promise<EmailEvidence> => {
  const known: EmailEvidence = { parsed, lists, mx: null, disposableExchange: false, mailbox: null }
  if (!parsed.valid || parsed.address.domainLiteral || lists?.routable !== true) return known
  const mx = await exchangers.find(parsed.address.asciiDomain)
  const disposableExchange =
    mx.kind === 'found' && mx.records.some(({ exchange }) => isDisposableExchange(exchange))
  return { ...known, mx, disposableExchange }
}

/** Whether the verdict depends on the mailbox's server. Without the server's answer, the verdict is row 9. */
const mailboxDecides = (evidence: EmailEvidence): boolean => verdictOf(evidence).row === 9

/** False if the servers accept every recipient, so that their answer is meaningless. */
const isWorthAsking = ({ mx }: EmailEvidence): boolean =>
  mx?.kind !== 'found' || !acceptsEverything(mx.records)

const askMailbox = async (
  { mailbox, checks, secrets, sealer, later, clock, logger }: EmailValidationParts,
  open: EmailEvidence,
  { key }: Caller,
): Promise<MailboxFinding | null> => {
  const { parsed, mx } = open
  if (mailbox === null || !parsed.valid || mx?.kind !== 'found') return null
  const checkedAt = (): string => new Date(clock.now()).toISOString()
  if (!isWorthAsking(open)) return { evidence: acceptedUnasked, checkedAt: checkedAt(), cached: false }
  // Unlike the HMAC in facts, this HMAC is case-sensitive, because only the server knows whether case matters (RFC 5321 §2.4).
  const mailboxHmac = secrets.addressHmac(parsed.address.normalized)
  const known = await checks.find(mailboxHmac)
  if (known !== null) return { ...known, cached: true }
  const evidence = await mailbox.probe(parsed.address, mx, { party: key.organizationId })
  if (evidence.retryAfterSeconds !== null) {
    const options = { afterSeconds: evidence.retryAfterSeconds, key: mailboxHmac }
    // The call waits only briefly for the queue, because its answer is the same if no later check can be scheduled.
    const asked = sealer
      .seal(parsed.address.normalized, mailboxHmac)
      .then((sealed) => later(`${mailboxHmac}:${sealed}`, options))
      .catch((error: unknown) =>
        logger.warn({ err: error }, 'a later check of a mailbox could not be scheduled'),
      )
    await within(asked, { waitMs: queueMaxMs }, () => undefined)
  }
  return { evidence, checkedAt: checkedAt(), cached: false }
}
