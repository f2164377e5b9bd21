import { z } from 'zod'
import { keyedHmac } from './primitives.ts'

/** The verdict of an e-mail validation (decision 17). Only `valid` is charged. */
export const emailStatus = z.enum(['valid', 'invalid', 'risky', 'unknown'])
export type EmailStatus = z.infer<typeof emailStatus>

/**
 * The outcome of the company enrichment. `not_applicable`: the domain is a free, disposable or relay domain, the address
 * is invalid, or too little is known about the address.
 */
export const companyStatus = z.enum(['found', 'not_found', 'not_requested', 'not_applicable'])
export type CompanyStatus = z.infer<typeof companyStatus>

/**
 * The facts of an e-mail validation. The event log never contains the address, only its keyed HMAC and, if it is
 * well-formed, its domain (decision 21). `decision_row` is the row of the decision table that led to the verdict.
 */
export const emailValidationFacts = z.object({
  kind: z.literal('email_validation'),
  status: emailStatus,
  sub_status: z.string().regex(/^[a-z0-9_]{1,40}$/),
  decision_row: z.int().min(1).max(17),
  company_status: companyStatus,
  domain: z.string().min(1).max(255).nullable(),
  address_hmac: keyedHmac,
})
export type EmailValidationFacts = z.infer<typeof emailValidationFacts>
