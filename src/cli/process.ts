import { addressText, liveProcesses } from '../peers/processes-table.ts'
import { apartIn } from '../start/apart.ts'
import type { Command } from './command.ts'
import { table } from './table.ts'

const list: Command = {
  name: 'process list',
  summary:
    'the api processes that live, by the table in the database: where they take commands of the others',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation }) => {
    const live = await liveProcesses((await foundation()).pool)
    const apart = apartIn(live)
    const processes = live.map((one) => ({
      process: one.id,
      roles: one.roles.join(','),
      written_per_second: Math.round(one.written),
      address: one.address === null ? '' : addressText(one.address),
      counters: one.counters,
      host: one.host,
      pid: one.pid,
      heartbeat_seconds: Math.round(one.ageMs / 100) / 10,
    }))
    return {
      json: processes,
      lines:
        processes.length === 0
          ? ['no api process lives']
          : [...table(processes), ...(apart === null ? [] : [`rate limits: ${apart}`])],
    }
  },
}

export const processCommands: readonly Command[] = [list]
