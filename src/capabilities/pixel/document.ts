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
import examples from './examples.json' with { type: 'json' }

/** What people read about the pixel controls. */

const domain = z
  .string()
  .describe('A registrable domain or one below it; the rule covers everything under it')
const period = pixelPeriod.describe('UTC calendar day or month')
const codes = ['REQ_002', 'REQ_003'] as const

const shared = { capability: 'pixel', permission: 'pixel_control' } as const

/** By action. All free, and all on the API host. */
export const pixelCalls = {
  setLimit: {
    ...shared,
    method: 'POST',
    path: '/pixel/limit',
    document: {
      operationId: 'setPixelLimit',
      summary: 'Limit the hits of a domain',
      description:
        'At most so many hits of a domain and everything under it fire in a day or a month. A limit that exists is replaced. Free.',
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
      description: 'Parameters may also be in the query. A missing limit is not an error. Free.',
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
      description: 'With how much of each is used. Free.',
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
      description: 'No pixel on the domain, or on anything under it, fires. Free.',
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
      description: 'Of the domain itself: a block on a domain above it stays. Free.',
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
      description: 'Free.',
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
      summary: 'May this pixel fire?',
      description:
        'Counts a hit and says whether the pixel may fire. Where that cannot be found out it may not. Free.',
      request: z.object({
        url: z.string().describe('The absolute http or https URL that is about to be asked for'),
        hit_id: z
          .string()
          .min(1)
          .max(128)
          .nullish()
          .describe('The same hit again within a day is answered alike and counted once'),
      }),
      result: pixelDecision,
      codes,
    },
  },
} as const satisfies Record<string, DescribedCall>

export const document: CapabilityDocument = {
  tag: 'pixel',
  about: 'Limits and blocks of pixels, and whether a pixel may fire.',
  calls: Object.values(pixelCalls),
  examples,
}
