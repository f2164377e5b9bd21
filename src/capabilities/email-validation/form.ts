import type { CapabilityForm } from '../../call/form.ts'
import { type EmailValidationResult, emailValidationCall, parseEmailRequest } from './contract.ts'
import { decide, type EmailFindings } from './decide.ts'
import { type EmailInput, type EmailValidationParts, gather } from './gather.ts'
import { readAddress } from './read-address.ts'
import { rehearsal } from './rehearsal.ts'

export const emailValidationForm = (
  parts: EmailValidationParts,
): CapabilityForm<EmailInput, EmailFindings, EmailValidationResult> => ({
  ...emailValidationCall,
  perSecond: (limits) => limits.email_validations_per_second,
  parse: (body) => {
    const read = parseEmailRequest(body)
    if ('refusal' in read) return read
    return { input: { ...read.input, ...readAddress(read.input.email) } }
  },
  rehearse: rehearsal(parts),
  gather: (input, caller) => gather(parts, input, caller),
  decide,
  billed: (result, lines) => ({
    ...result,
    billing: {
      billable: lines.length > 0,
      validation_credits: lines.find(({ sku }) => sku === 'email_validation')?.amount ?? '0',
      company_credits: lines.find(({ sku }) => sku === 'company_data')?.amount ?? '0',
    },
  }),
})
