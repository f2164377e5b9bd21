import { z } from 'zod'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { ipLookupResult } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

export const ipLookupCall: DescribedCall = {
  capability: 'ip_lookup',
  permission: 'ip_lookup',
  method: 'POST',
  path: '/v1/ip/lookup',
  document: {
    operationId: 'lookUpIp',
    summary: 'Look up an IP address',
    description:
      'Returns the location of an address. If the address is private, reserved or unknown, the answer has `success: false` and is free.',
    request: z.object({ ip: z.string().describe('IPv4 or IPv6, as text') }),
    result: ipLookupResult,
    codes: ['IP_001', 'REQ_002', 'REQ_003', 'CREDIT_001'],
  },
}

export const document: CapabilityDocument = {
  tag: 'ip_lookup',
  about: 'The locations of IP addresses.',
  calls: [ipLookupCall],
  examples,
  firstCall: { call: ipLookupCall, body: { ip: '8.8.8.8' } },
}
