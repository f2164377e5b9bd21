/**
 * The kinds of evidence about an address, each gathered in a folder of its own and judged together in `decide.ts`.
 * Failures outside are evidence too; what could not be determined is null, never false (decision 17).
 */

/** Why a text is not an address (RFC 5321 Mailbox, RFC 6531, IDNA2008). One word per broken rule; the first one found is reported. */
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

/** A well-formed address, in normal form. */
export type EmailAddress = {
  /** NFC; the domain in lower case as U-labels. The local part keeps its case: only its host may fold it. */
  readonly normalized: string
  /** A quoted local part keeps its quotes only if it needs them. */
  readonly localPart: string
  readonly domain: string
  /** The domain as A-labels, lower case, as DNS and SMTP need it. A literal keeps its brackets. */
  readonly asciiDomain: string
  /** The local part is not ASCII: the message path must offer SMTPUTF8 (RFC 6531). */
  readonly smtputf8: boolean
  readonly quoted: boolean
  readonly domainLiteral: boolean
}

export type ParsedEmail =
  | { readonly valid: true; readonly address: EmailAddress }
  | { readonly valid: false; readonly reason: SyntaxReason }

/** What lists say about an address; no network is involved. */
export type ListEvidence = {
  readonly disposable: boolean
  readonly roleBased: boolean
  readonly freeProvider: boolean
  readonly privacyRelay: boolean
  /** The tag of a subaddress (`user+tag@…`) if the provider is known to support tags; null otherwise. */
  readonly subaddress: string | null
  /** The whole corrected address, if the domain looks like a mistyped provider. */
  readonly didYouMean: string | null
  /** The registrable domain (public suffix plus one label), ASCII; null for a literal, a single label or a suffix itself. */
  readonly registrableDomain: string | null
  /** False for a special-use domain or one that by definition is not in the DNS root: it is never routable (RFC 6761, RFC 2606). */
  readonly routable: boolean
}

export type MxRecord = { readonly exchange: string; readonly priority: number }

/** A mail exchanger with the addresses that may be dialled: all global, or allowed by SMTP_ALLOW. */
export type MxTarget = { readonly exchange: string; readonly addresses: readonly string[] }

export type MxEvidence =
  | {
      readonly kind: 'found'
      /** No MX record, but an A or AAAA record (RFC 5321 §5.1). */
      readonly implicit: boolean
      readonly records: readonly MxRecord[]
      /** In the order to try them. Never empty. */
      readonly targets: readonly MxTarget[]
      /** `google`, `microsoft`, …; null if unknown. */
      readonly provider: string | null
    }
  /** Every target is missing, an address literal, localhost or outside global address space. */
  | {
      readonly kind: 'unroutable'
      readonly implicit: boolean
      readonly records: readonly MxRecord[]
      readonly provider: string | null
    }
  /** RFC 7505: the domain accepts no mail. */
  | { readonly kind: 'null_mx' }
  | { readonly kind: 'domain_not_found' }
  | { readonly kind: 'no_mail_server' }
  /** SERVFAIL, REFUSED or a time-out: the answer is unknown. `code` is the resolver's, such as ESERVFAIL. */
  | { readonly kind: 'dns_error'; readonly code: string }

/** What the servers' answers mean, classified by enhanced code, then reply code, then text. */
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

export type MailboxEvidence = {
  readonly outcome: MailboxOutcome
  /** Null if no server was dialled: too many calls wait already, or we leave alone a server that rejects us or accepts everything. */
  readonly connected: boolean | null
  /** Whether a non-existent address was accepted too; null if unknown. */
  readonly catchAll: boolean | null
  /** The reply that decided, without its text, because servers echo addresses in it. */
  readonly code: number | null
  readonly enhancedCode: string | null
  /** When to ask again, if the outcome is expected to change. */
  readonly retryAfterSeconds: number | null
}

/**
 * Whether the domain may belong to a business with company data: it has a registrable domain and
 * is not a mailbox provider, throw-away or alias service.
 */
export const isBusinessDomain = (evidence: ListEvidence): boolean =>
  evidence.registrableDomain !== null &&
  !evidence.freeProvider &&
  !evidence.disposable &&
  !evidence.privacyRelay
