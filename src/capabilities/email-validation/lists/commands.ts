import type { CapabilityCommand } from '../../../call/command.ts'
import { ListRefused, refreshLists } from './refresh.ts'

export const listsRefresh: CapabilityCommand = {
  name: 'lists refresh',
  summary:
    'fetch the lists of disposable and free domains anew; services read them when they start and on SIGHUP',
  parameters: [{ name: 'from', help: 'a folder of downloads, <source>.txt each, instead of the network' }],
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
