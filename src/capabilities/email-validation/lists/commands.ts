import type { CapabilityCommand } from '../../../call/command.ts'
import { ListRefused, refreshLists } from './refresh.ts'

export const listsRefresh: CapabilityCommand = {
  name: 'lists refresh',
  summary:
    'fetch the lists of disposable and free domains anew; services read them when they start and on SIGHUP',
  parameters: [
    { name: 'from', help: 'a folder of downloads, <source>.txt each, instead of the network', kind: 'file' },
  ],
  changes: {
    of: 'records',
    asks: 'never',
    left: 'Some lists may be new and others as they were: the same command fetches the rest.',
    plan: async (_, given) => ({
      says: [`Take the lists of domains anew from ${given.text('from') ?? 'the network'}.`],
    }),
  },
  run: async (_context, given) => {
    const from = given.text('from')
    try {
      return { json: await refreshLists({ ...(from === undefined ? {} : { from }), now: new Date() }) }
    } catch (error) {
      if (error instanceof ListRefused) return { json: { refused: error.message }, failed: true }
      throw error
    }
  },
}
