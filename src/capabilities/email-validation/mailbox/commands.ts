import { randomUUID } from 'node:crypto'
import type { CapabilityCommand } from '../../../call/command.ts'
import { closeBreakers, openBreakersOf } from './closings.ts'
import { mailServers } from './servers.ts'

const shownMax = 200

const list: CapabilityCommand = {
  name: 'mail-server list',
  summary: 'the mail servers that processes know, open breakers first',
  parameters: [{ name: 'find', help: 'only servers or domains whose name holds this text' }],
  changes: 'nothing',
  run: async ({ storage }, given) => {
    const { pool } = await storage()
    const search = (given.text('find') ?? '').toLowerCase().replaceAll(/[^!-~]/g, '')
    const servers = await mailServers(pool, { search, max: shownMax })
    const json = servers.map(({ reportedAt, openForMs, exchange, address, breaker, why, ...rest }) => ({
      ...{ server: exchange, address, breaker, why, openings: rest.openings, waiting: rest.waiting },
      open_until: openForMs === null ? null : new Date(reportedAt.getTime() + openForMs).toISOString(),
      ...{ sessions: rest.sessions, process: rest.process, reported_at: reportedAt.toISOString() },
    }))
    return {
      json,
      ...(json.length === 0
        ? { lines: ['No process has asked such a mail server lately.'] }
        : { sections: [json] }),
    }
  },
}

const close: CapabilityCommand = {
  name: 'mail-server close-breaker',
  summary: 'let checks ask a mail server again at once, in every process',
  parameters: [{ name: 'server', help: 'its name or address, as "mail-server list" has it', required: true }],
  changes: {
    of: 'settings',
    asks: 'on a terminal',
    left: 'It may be on record and not be done: the same command does it.',
    plan: async ({ storage }, given) => {
      const open = await openBreakersOf((await storage()).pool, given.required('server'))
      return {
        says: open.map(
          ({ exchange, address, process, why }) =>
            `Close the breaker of ${exchange} (${address}) in ${process}${why === null ? '' : `: ${why}`}.`,
        ),
      }
    },
  },
  run: async ({ storage }, given) => {
    const open = await storage()
    const addresses = await closeBreakers(open, given.required('server'), {
      ...open.operator,
      once: `command ${randomUUID()}`,
    })
    return {
      json: { addresses },
      lines: [`Every process closes it within ten seconds: ${addresses.join(', ')}.`],
    }
  },
}

export const mailServerCommands: readonly CapabilityCommand[] = [list, close]
