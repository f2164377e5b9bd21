import { migrationsToApply } from '../foundation/database.ts'
import { type Command, databaseWaitMs } from './command.ts'

/** Applies the migrations. Run before many processes are started at the same time. */
export const migrateCommand: Command = {
  name: 'migrate',
  action: 'installation.change',
  summary: 'migrate the database to this release; every start does this too',
  parameters: [],
  changes: {
    of: 'rows',
    asks: 'never',
    left: 'Each migration was applied completely or not at all. Run the same command again to apply the rest.',
    plan: async ({ config, logger }) => {
      const pending = await migrationsToApply(config, { logger, waitMs: databaseWaitMs })
      return {
        says:
          pending.length === 0
            ? ['Nothing: the database has every migration of this release.']
            : [
                `Apply ${pending.length === 1 ? 'a migration' : `${pending.length} migrations`} missing from the database: ${pending.join(', ')}.`,
              ],
        json: { migrations: pending },
        sections: [],
      }
    },
  },
  run: async ({ foundation }) => {
    await foundation()
    return { json: { migrated: true } }
  },
}
