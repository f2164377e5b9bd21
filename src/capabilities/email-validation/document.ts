import { z } from 'zod'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { emailValidationResult } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

export const emailValidationCall: DescribedCall = {
  capability: 'email_validation',
  permission: 'email_validation',
  method: 'POST',
  path: '/v1/email/validate',
  document: {
    operationId: 'validateEmail',
    summary: 'Validate an e-mail address',
    description:
      'Reports whether mail can be delivered to an address, and what kind of address it is. Only `status: "valid"` is charged; ' +
      'company data is charged in addition if it was requested and found.',
    request: z.object({
      email: z.string().describe('As typed or pasted. A malformed address gets the status `invalid`'),
      include_company_data: z
        .boolean()
        .nullish()
        .describe('Adds the company behind a business domain. Default: false'),
    }),
    result: emailValidationResult,
    codes: ['REQ_002', 'REQ_003', 'CREDIT_001'],
  },
}

export const document: CapabilityDocument = {
  tag: 'email_validation',
  about: 'E-mail addresses: whether mail can be delivered, and to what kind of mailbox.',
  calls: [emailValidationCall],
  examples,
  firstCall: { call: emailValidationCall, body: { email: 'ada@example.com' } },
}
