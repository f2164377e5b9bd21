import { z } from 'zod'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { ipLookupResult } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

/** What people read about IP lookups. */

export const ipLookupCall: DescribedCall = {
  capability: 'ip_lookup',
  permission: 'ip_lookup',
  method: 'POST',
  path: '/v1/ip/lookup',
  document: {
    operationId: 'lookUpIp',
    summary: 'Look up an IP address',
    description:
      'Where an address is. An address that is private, reserved or in no file is answered with `success: false` and costs nothing.',
    request: z.object({ ip: z.string().describe('IPv4 or IPv6, as text') }),
    result: ipLookupResult,
    codes: ['IP_001', 'REQ_002', 'REQ_003', 'CREDIT_001'],
  },
}

export const document: CapabilityDocument = {
  tag: 'ip_lookup',
  about: 'IP addresses: where they are.',
  calls: [ipLookupCall],
  examples,
  firstCall: { call: ipLookupCall, body: { ip: '8.8.8.8' } },
}
