import type { Command } from './command.ts'

/** For installations that start many processes at once: one applies the migrations, the others find them applied. */
export const migrateCommand: Command = {
  name: 'migrate',
  summary: 'bring the database to this release; every start does this too',
  parameters: [],
  run: async ({ foundation }) => {
    await foundation()
    return { json: { migrated: true } }
  },
}
