import type { Command } from '../command.ts'
import { seedDemo } from '../seed.ts'

export const seedCommands: readonly Command[] = [
  {
    name: 'seed',
    summary: 'make another demo organization with a key and 1,000 credits; the demo user gets a new password',
    parameters: [],
    run: async ({ foundation, config }) => {
      const address = config.HOST.includes(':') ? `[${config.HOST}]` : config.HOST
      const demo = await seedDemo(await foundation(), {
        apiUrl: `http://${address}:${config.API_PORT}`,
        dashboardUrl: `http://${address}:${config.DASHBOARD_PORT}`,
      })
      return { json: demo }
    },
  },
]
