import { z } from 'zod'
import { command } from '../declare.ts'
import { flag, reason } from '../fields.ts'
import { orRefused } from './checkpoints.ts'

const checkpoint = command({
  name: 'event-log checkpoint',
  action: 'log.change',
  long: 'repeatable',
  summary: 'sign a checkpoint of the whole event log, so that a copy can be kept elsewhere',
  input: z.object({
    rebuild: flag({ label: 'Rebuild the tree', help: 'first rebuild the stored tree from the log' }),
  }),
  changes: { of: 'records', asks: 'never' },
  plan: async (_, { rebuild }) => [
    ...(rebuild ? ['Rebuild the stored tree from the log.'] : []),
    'Sign a checkpoint of the current event log, and record the checkpoint.',
  ],
  run: async ({ foundation }, { rebuild }) => {
    const { origin, size, root, position, note, at } = await orRefused(
      foundation.checkpoints.make({ rebuild }),
    )
    return {
      json: { origin, size, root, position, note, recorded_at: at },
      lines: note.trimEnd().split('\n'),
    }
  },
})

const announceKey = command({
  name: 'event-log announce-key',
  action: 'log.change',
  summary:
    'replace the key that signs checkpoints; the current key signs the announcement of the new key, or, if KEY_DIR was lost, your reason replaces that signature',
  // The command writes the key to KEY_DIR on the machine on which it runs.
  interfaces: ['command line'],
  input: z.object({ reason: reason({ help: 'kept in the event log' }) }),
  changes: { of: 'access', asks: 'always' },
  plan: async () => 'Sign all later checkpoints with a new key. The current key is no longer used.',
  run: async ({ foundation, operator: { actor } }, { reason }) => {
    const { keyId, vouchedFor } = await orRefused(foundation.checkpoints.announceKey({ actor, reason }))
    return { json: { key_id: keyId, vouched_for_by_previous: vouchedFor, announced_by: actor } }
  },
})

export const declarations = [checkpoint, announceKey]
