import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { whoamiBody } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

export const whoamiCall: DescribedCall = {
  capability: 'whoami',
  permission: null,
  method: 'GET',
  path: '/whoami',
  body: 'flat',
  document: {
    operationId: 'whoami',
    summary: 'Get the details of an API key',
    description:
      'Returns the organization and the details of the key in the request. Available on the host of the dashboard too. Free.',
    request: null,
    result: whoamiBody,
    codes: [],
  },
}

export const document: CapabilityDocument = {
  tag: 'whoami',
  about: 'The API key of a request.',
  calls: [whoamiCall],
  examples,
  firstCall: { call: whoamiCall, body: null },
}
