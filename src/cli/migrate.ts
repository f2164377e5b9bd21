import type { Command } from './command.ts'

/** For installations that start many processes at once: one applies the migrations, the others find them applied. */
export const migrateCommand: Command = {
  name: 'migrate',
  summary: 'bring the database to this release; every start does this too',
  parameters: [],
  changes: {
    of: 'rows',
    asks: 'never',
    left: 'Each migration was applied whole or not at all: the same command applies the rest.',
    plan: async () => ({ says: ['Apply the migrations of this release that the database does not have.'] }),
  },
  run: async ({ foundation }) => {
    await foundation()
    return { json: { migrated: true } }
  },
}
