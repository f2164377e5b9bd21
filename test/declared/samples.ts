/** An example of each command and query: what the suite gives through every interface. */

import { declarations } from '../../src/administration/declarations.ts'
import type { Given } from '../../src/administration/declare.ts'
import type { Scene } from '../dashboard/scene.ts'

/** What a sample is about. Each interface gets a scene of its own, and all of them have the same history. */
type Sample = (scene: Scene & { readonly grantId: string }) => Given

const samples: Readonly<Record<string, Sample>> = {
  'org create': () => ({ name: 'Tailspin <Toys>', overdraft_limit: '12.5' }),
  'org list': () => ({}),
  'credits grant': () => ({
    amount: '12.5',
    expires_at: '2099-01-31',
    priority: '20',
    reason: 'invoice <b>',
  }),
  'credits void': ({ grantId }) => ({ grant: grantId, reason: 'not paid' }),
  'credits adjust': () => ({ amount: '-5.25', reason: 'counted twice', reference: 'note 7' }),
  'credits refund': ({ requestId }) => ({
    request: requestId,
    reason: 'wrong answer',
    reference: 'refund 1',
  }),
  'credits threshold': () => ({ amount: '100' }),
  'credits balance': () => ({}),
  'credits lots': () => ({}),
}

/** Throws for a declaration without an example. */
export const sampleOf = (name: string): Sample => {
  const sample = samples[name]
  if (sample === undefined) throw new Error(`add an example of "${name}" to test/declared/samples.ts`)
  return sample
}

const names = declarations.map((one) => one.name as string)
export const samplesOfNothing = Object.keys(samples).filter((name) => !names.includes(name))
