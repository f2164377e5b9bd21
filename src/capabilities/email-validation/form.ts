import type { CapabilityForm } from '../../call/form.ts'
import { type EmailValidationResult, parseEmailRequest } from './contract.ts'
import { decide, type EmailFindings } from './decide.ts'
import { type EmailInput, type EmailValidationParts, gather } from './gather.ts'
import { inspectLists } from './lists/inspect.ts'
import { parseEmail } from './syntax/parse.ts'

export const emailValidationForm = (
  parts: EmailValidationParts,
): CapabilityForm<EmailInput, EmailFindings, EmailValidationResult> => ({
  capability: 'email_validation',
  permission: 'email_validation',
  method: 'POST',
  path: '/v1/email/validate',
  perSecond: (limits) => limits.email_validations_per_second,
  parse: (body) => {
    const read = parseEmailRequest(body)
    if ('refusal' in read) return read
    const parsed = parseEmail(read.input.email)
    return { input: { ...read.input, parsed, lists: parsed.valid ? inspectLists(parsed.address) : null } }
  },
  gather: (input, caller) => gather(parts, input, caller),
  decide,
  billed: (result, lines) => ({
    ...result,
    billing: {
      ...result.billing,
      validation_credits: lines.find(({ sku }) => sku === 'email_validation')?.amount ?? '0',
      company_credits: lines.find(({ sku }) => sku === 'company_data')?.amount ?? '0',
    },
  }),
})
