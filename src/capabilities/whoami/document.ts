import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { whoamiBody } from './contract.ts'
import examples from './examples.json' with { type: 'json' }

/** What people read about whoami. */

export const whoamiCall: DescribedCall = {
  capability: 'whoami',
  permission: null,
  method: 'GET',
  path: '/whoami',
  body: 'flat',
  document: {
    operationId: 'whoami',
    summary: 'Whose key is this?',
    description:
      'The organization and the details of the key that asks. The host of the dashboard answers it too. Free.',
    request: null,
    result: whoamiBody,
    codes: [],
  },
}

export const document: CapabilityDocument = {
  tag: 'whoami',
  about: 'The key itself.',
  calls: [whoamiCall],
  examples,
  firstCall: { call: whoamiCall, body: null },
}
