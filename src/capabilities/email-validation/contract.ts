import { z } from 'zod'
import { missingParameter, type Refusal, wrongParameter } from '../../call/errors.ts'
import type { JsonObject } from '../../call/form.ts'
import { companyStatus, emailStatus } from '../../events/email-validation.ts'
import { syntaxReasons } from './evidence.ts'

/** The wire format of POST /v1/email/validate. Every key is always present, and an unknown value is null, never false. */

const undetermined = z.boolean().nullable()

export const companyResult = z.object({
  name: z.string().nullable(),
  legal_name: z.string().nullable(),
  /** The registrable domain, in A-labels. */
  domain: z.string(),
  website: z.string().nullable(),
  industry: z.string().nullable(),
  size_range: z.string().nullable(),
  employee_count: z.int().nullable(),
  founded_year: z.int().nullable(),
  location: z.object({
    locality: z.string().nullable(),
    region: z.string().nullable(),
    country: z.string().nullable(),
    /** ISO 3166-1 alpha-2, or XK. */
    country_code: z.string().nullable(),
  }),
  profnet_url: z.string().nullable(),
  logo_url: z.string().nullable(),
  source: z.string(),
  source_updated_at: z.string().nullable(),
})
export type CompanyResult = z.infer<typeof companyResult>

export const emailValidationResult = z.object({
  /** The submitted text, cut to the length that is checked. */
  email: z.string(),
  normalized: z.string().nullable(),
  local_part: z.string().nullable(),
  domain: z.string().nullable(),
  ascii_domain: z.string().nullable(),
  status: emailStatus,
  sub_status: z.string(),
  score: z.int().min(0).max(100),
  did_you_mean: z.string().nullable(),
  checks: z.object({
    syntax: z.object({
      valid: z.boolean(),
      reason: z.enum(syntaxReasons).nullable(),
      smtputf8: undetermined,
      quoted: undetermined,
      domain_literal: undetermined,
    }),
    disposable: undetermined,
    role_based: undetermined,
    free_provider: undetermined,
    privacy_relay: undetermined,
    subaddress: z.string().nullable(),
    mx: z.object({
      found: undetermined,
      null_mx: undetermined,
      implicit: undetermined,
      provider: z.string().nullable(),
      records: z.array(z.object({ exchange: z.string(), priority: z.int() })),
    }),
    smtp: z.object({
      attempted: z.boolean(),
      connected: undetermined,
      deliverable: undetermined,
      catch_all: undetermined,
      mailbox_full: undetermined,
      disabled: undetermined,
      code: z.int().nullable(),
      enhanced_code: z.string().nullable(),
    }),
  }),
  company: companyResult.nullable(),
  company_status: companyStatus,
  billing: z.object({
    billable: z.boolean(),
    /** The credits charged for this call, as canonical decimal strings (decision 8). */
    validation_credits: z.string(),
    company_credits: z.string(),
  }),
  /** True if the mailbox was checked earlier, at `checked_at`, and not again for this call. */
  cached: z.boolean(),
  checked_at: z.string(),
  /** Whole seconds after which a new call may give a better answer. */
  retry_after: z.int().nullable(),
})
export type EmailValidationResult = z.infer<typeof emailValidationResult>

/** The maximum number of characters of the text in the answer. An address has at most 254 octets (RFC 5321). */
export const emailCharactersMax = 320

export type EmailRequest = { readonly email: string; readonly companyRequested: boolean }

/** Refuses a missing address or a value that is not a string, but not a malformed address (Spec §4.1, decision 16). */
export const parseEmailRequest = ({
  email,
  include_company_data: company,
}: JsonObject): { readonly input: EmailRequest } | { readonly refusal: Refusal } => {
  if (email === undefined || email === null) return { refusal: missingParameter('email', 'string') }
  if (typeof email !== 'string') return { refusal: wrongParameter('email', 'a string') }
  if (company !== undefined && company !== null && typeof company !== 'boolean')
    return { refusal: wrongParameter('include_company_data', 'a boolean') }
  return { input: { email, companyRequested: company === true } }
}
