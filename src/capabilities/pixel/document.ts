import { z } from 'zod'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { pixelPeriod } from '../../events/pixel.ts'
import {
  pixelBlock,
  pixelBlockRemoval,
  pixelBlocks,
  pixelDecision,
  pixelLimit,
  pixelLimitRemoval,
  pixelLimits,
} from './contract.ts'
import { urlCharactersMax } from './domain.ts'
import examples from './examples.json' with { type: 'json' }

const domain = z
  .string()
  .describe('A registrable domain or a subdomain; the rule covers the domain and all its subdomains')
const period = pixelPeriod.describe('A calendar day or month in UTC')
const codes = ['REQ_002', 'REQ_003'] as const

const shared = { capability: 'pixel', permission: 'pixel_control' } as const

/** The calls by action. All are free, and all are on the API host. */
export const pixelCalls = {
  setLimit: {
    ...shared,
    method: 'POST',
    path: '/pixel/limit',
    document: {
      operationId: 'setPixelLimit',
      summary: 'Limit the hits of a domain',
      description:
        'Limits how many hits on a domain and its subdomains fire in a day or a month. Replaces an existing limit. Free.',
      request: z.object({ domain, period, number: z.int().min(1).max(1_000_000_000) }),
      result: pixelLimit,
      codes,
    },
  },
  removeLimit: {
    ...shared,
    method: 'DELETE',
    path: '/pixel/limit',
    document: {
      operationId: 'removePixelLimit',
      summary: 'Remove a limit',
      description:
        'Removes a limit; it is not an error if there is none. Send the parameters in the body or in the query. Free.',
      request: z.object({ domain, period }),
      result: pixelLimitRemoval,
      codes,
    },
  },
  listLimits: {
    ...shared,
    method: 'GET',
    path: '/pixel/limit',
    document: {
      operationId: 'listPixelLimits',
      summary: 'List the limits',
      description: 'Returns all limits with their usage. Free.',
      request: null,
      result: pixelLimits,
      codes: [],
    },
  },
  block: {
    ...shared,
    method: 'POST',
    path: '/pixel/block',
    document: {
      operationId: 'blockPixel',
      summary: 'Block a domain',
      description: 'Blocks a domain: no pixel fires on it or its subdomains. Free.',
      request: z.object({ domain }),
      result: pixelBlock,
      codes,
    },
  },
  unblock: {
    ...shared,
    method: 'DELETE',
    path: '/pixel/block',
    document: {
      operationId: 'unblockPixel',
      summary: 'Remove a block',
      description:
        'Removes the block of this domain; a block on a parent domain stays. Send the domain in the body or in the query. Free.',
      request: z.object({ domain }),
      result: pixelBlockRemoval,
      codes,
    },
  },
  listBlocks: {
    ...shared,
    method: 'GET',
    path: '/pixel/block',
    document: {
      operationId: 'listPixelBlocks',
      summary: 'List the blocks',
      description: 'Returns all blocks. Free.',
      request: null,
      result: pixelBlocks,
      codes: [],
    },
  },
  decide: {
    ...shared,
    method: 'POST',
    path: '/pixel/decide',
    document: {
      operationId: 'decidePixel',
      summary: 'Decide whether a pixel may fire',
      description:
        'Counts a hit and returns whether the pixel may fire. If this cannot be determined, the answer is no. Free.',
      request: z.object({
        url: z
          .string()
          .max(urlCharactersMax)
          .describe('The absolute http or https URL that is about to be requested'),
        hit_id: z
          .string()
          .min(1)
          .max(128)
          .nullish()
          .describe('A repeated hit with the same id within a day gets the same answer and is counted once'),
      }),
      result: pixelDecision,
      codes,
    },
  },
} as const satisfies Record<string, DescribedCall>

export const document: CapabilityDocument = {
  tag: 'pixel',
  about: 'Limits and blocks for pixels, and decisions whether a pixel may fire.',
  calls: Object.values(pixelCalls),
  examples,
}
