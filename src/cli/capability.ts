import { catchUp } from '../administration/catch-up.ts'
import { type Capability, SettingFault } from '../call/capability.ts'
import type { CapabilityCommand } from '../call/command.ts'
import { type Config, ConfigError } from '../config.ts'
import { vacuum } from '../foundation/vacuum.ts'
import { readKept } from '../projector/kept.ts'
import { keptTable, liveTable } from '../projector/tables.ts'
import type { Command } from './command.ts'

/** What operators can type about capabilities. */
export const commandsOf = (capabilities: readonly Pick<Capability<Config>, 'commands'>[]): Command[] =>
  capabilities.flatMap(({ commands = [] }) => commands).map(commandOf)

const commandOf = ({ run, ...described }: CapabilityCommand<Config>): Command => ({
  ...described,
  run: async ({ config, logger, foundation, progress }, given) => {
    const context = {
      settings: config,
      logger,
      progress,
      storage: foundation,
      caughtUp: async () => catchUp(await foundation(), logger),
      vacuum: async ({ tables, projections }) => {
        const { pool, migrationUrl } = await foundation()
        const kept = (await readKept(pool)).map(({ name, version }) => `${name}/${version}`)
        const rows = projections.flatMap((one) => {
          const sets = kept.includes(`${one.name}/${one.version}`)
            ? [liveTable(one), keptTable(one)]
            : [liveTable(one)]
          return sets.flatMap((table) => one.tables.map(({ name }) => table(name)))
        })
        return vacuum(migrationUrl, [...tables, ...rows])
      },
    } satisfies Parameters<typeof run>[0]
    try {
      return await run(context, given)
    } catch (cause) {
      throw cause instanceof SettingFault ? new ConfigError(cause.message, { cause }) : cause
    }
  },
})
