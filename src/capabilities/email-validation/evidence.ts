/**
 * Each kind of evidence about an address is gathered in its own folder, and `decide.ts` combines them. A failure of another system is also
 * evidence, and an unknown value is null, never false (decision 17).
 */
import { z } from 'zod'

/** The rules for addresses (RFC 5321 Mailbox, RFC 6531, IDNA2008). The first broken rule is reported. */
export const syntaxReasons = [
  'empty',
  'too_long',
  'no_at_sign',
  'control_character',
  'local_part_empty',
  'local_part_too_long',
  'local_part_character',
  'local_part_dot',
  'quoted_string',
  'domain_empty',
  'domain_too_long',
  'domain_character',
  'domain_dot',
  'label_too_long',
  'label_hyphen',
  'label_idna',
  'domain_literal',
  'not_normalizable',
] as const
export type SyntaxReason = (typeof syntaxReasons)[number]

export type EmailAddress = {
  /** In NFC, with the domain in lower case as U-labels. The local part keeps its case, because only the mail server knows whether case matters. */
  readonly normalized: string
  /** The quotes of a quoted local part are kept only if they are needed. */
  readonly localPart: string
  readonly domain: string
  /** The domain as A-labels in lower case, as needed by DNS and SMTP. A literal keeps its brackets. */
  readonly asciiDomain: string
  /** True if the local part is not ASCII, so that every server on the way must support SMTPUTF8 (RFC 6531). */
  readonly smtputf8: boolean
  readonly quoted: boolean
  readonly domainLiteral: boolean
}

export type ParsedEmail =
  | { readonly valid: true; readonly address: EmailAddress }
  | { readonly valid: false; readonly reason: SyntaxReason }

export type ListEvidence = {
  readonly disposable: boolean
  readonly roleBased: boolean
  readonly freeProvider: boolean
  readonly privacyRelay: boolean
  /** The tag of a subaddress (`user+tag@…`) if the provider is known to support tags; null otherwise. */
  readonly subaddress: string | null
  /** The corrected address, if the domain looks like a mistyped provider. */
  readonly didYouMean: string | null
  /** The registrable domain (public suffix plus one label), ASCII; null for an address literal, a single label or a public suffix. */
  readonly registrableDomain: string | null
  /** False for a special-use domain, and for a domain that by definition is not in the DNS root (RFC 6761, RFC 2606). */
  readonly routable: boolean
}

export type MxRecord = { readonly exchange: string; readonly priority: number }

/** A mail exchanger with the addresses to which we may connect: global ones, and those that SMTP_ALLOW permits. */
export type MxTarget = { readonly exchange: string; readonly addresses: readonly string[] }

export type MxEvidence =
  | {
      readonly kind: 'found'
      /** The domain has no MX record, but an A or AAAA record (RFC 5321 §5.1). */
      readonly implicit: boolean
      readonly records: readonly MxRecord[]
      readonly targets: readonly MxTarget[]
      /** `google`, `microsoft`, …; null if unknown. */
      readonly provider: string | null
    }
  /** Each target either does not exist, or is an address literal, localhost or outside the global address space. */
  | {
      readonly kind: 'unroutable'
      readonly implicit: boolean
      readonly records: readonly MxRecord[]
      readonly provider: string | null
    }
  | { readonly kind: 'null_mx' }
  | { readonly kind: 'domain_not_found' }
  | { readonly kind: 'no_mail_server' }
  /** SERVFAIL, REFUSED or a time-out: the answer is unknown. `code` is the resolver's, such as ESERVFAIL. */
  | { readonly kind: 'dns_error'; readonly code: string }

export const mailboxOutcomes = [
  'accepted',
  'mailbox_not_found',
  'mailbox_disabled',
  'mailbox_full',
  'greylisted',
  'temporary_failure',
  'cannot_verify',
  'blocked',
  'smtputf8_unsupported',
  'no_connect',
  'timeout',
] as const

export type MailboxOutcome = (typeof mailboxOutcomes)[number]

/** The form in which the result of a later check is stored. */
export const mailboxEvidence = z.object({
  outcome: z.enum(mailboxOutcomes),
  /** Null if no server was contacted, because too many calls were waiting or because the server rejects us or accepts everything. */
  connected: z.boolean().nullable(),
  /** Whether a non-existent address was also accepted; null if unknown. */
  catchAll: z.boolean().nullable(),
  /** The code of the decisive reply. Its text is not stored, because servers echo addresses in it. */
  code: z.int().nullable(),
  enhancedCode: z.string().nullable(),
  /** Null if the outcome is not expected to change. */
  retryAfterSeconds: z.int().nullable(),
})
export type MailboxEvidence = Readonly<z.infer<typeof mailboxEvidence>>

/**
 * Whether the domain can belong to a business: it is registrable, and does not belong to a mailbox provider, a disposable-mail service or an
 * alias service.
 */
export const isBusinessDomain = (evidence: ListEvidence): boolean =>
  evidence.registrableDomain !== null &&
  !evidence.freeProvider &&
  !evidence.disposable &&
  !evidence.privacyRelay
