import { join } from 'node:path'
import { demoFile, seedDemo, writeDemo } from '../administration/seed.ts'
import { addressesNow } from '../start/addresses.ts'
import type { Command } from './command.ts'
import { members } from './table.ts'

export const seedCommands: readonly Command[] = [
  {
    name: 'seed',
    action: 'installation.change',
    summary:
      'create another demo organization with a key and 1,000 credits; the demo user gets a new password',
    parameters: [],
    changes: {
      of: 'access',
      asks: 'never',
      left: 'A demo organization may be incomplete: "org list" shows it, and another "seed" creates a new one.',
      plan: async () => ({
        says: [
          'Create a demo organization with a key and 1,000 credits, and give the demo user a new password.',
        ],
      }),
    },
    run: async ({ foundation, config }) => {
      const open = await foundation()
      const demo = await seedDemo(open, { ...(await addressesNow(config)), ...open.operator })
      if (!open.embedded) return { json: demo }
      // Later starts read this file and print its path.
      await writeDemo(config.DATA_DIR, demo)
      return {
        json: demo,
        lines: [
          ...members(demo),
          '',
          `${join(config.DATA_DIR, demoFile)} now contains this organization and the new password of user ${demo.dashboard_user}; earlier demo keys still work.`,
        ],
      }
    },
  },
]
