import { z } from 'zod'
import { command } from '../../../administration/declare.ts'
import { path } from '../../../administration/fields.ts'
import { ListRefused, refreshLists } from './refresh.ts'

const refresh = command({
  name: 'lists refresh',
  action: 'data.change',
  summary:
    'fetch the current lists of disposable and free domains; the service reads them when it starts and on SIGHUP',
  input: z.object({
    from: path({
      label: 'From',
      help: 'a folder with downloaded files named <source>.txt, used instead of the network',
    }).optional(),
  }),
  changes: { of: 'records', asks: 'never' },
  plan: async (_, { from }) => `Fetch the current domain lists from ${from ?? 'the network'}.`,
  run: async (_, { from }) => {
    try {
      return { json: await refreshLists({ ...(from && { from }), now: new Date() }) }
    } catch (error) {
      if (error instanceof ListRefused) return { json: { refused: error.message }, failed: true }
      throw error
    }
  },
})

export const listDeclarations = [refresh]
