import { catchUp } from '../administration/projections/catch-up.ts'
import { type Capability, SettingFault } from '../call/capability.ts'
import type { CapabilityCommand } from '../call/command.ts'
import { type Config, ConfigError } from '../config.ts'
import { vacuum } from '../foundation/vacuum.ts'
import { liveTable } from '../projector/tables.ts'
import type { Command, CommandContext } from './command.ts'

/** The commands for capabilities. */
export const commandsOf = (capabilities: readonly Pick<Capability<Config>, 'commands'>[]): Command[] =>
  capabilities.flatMap(({ commands = [] }) => commands).map(commandOf)

const commandOf = ({ run, changes, anyEnvironment, ...described }: CapabilityCommand<Config>): Command => ({
  ...described,
  ...(anyEnvironment === undefined ? {} : { anyEnvironment }),
  changes:
    changes === 'nothing'
      ? changes
      : {
          ...changes,
          plan: (context, given) => withSettings(() => changes.plan(contextOf(context), given)),
        },
  run: (context, given) => withSettings(() => run(contextOf(context), given)),
})

type CapabilityContext = Parameters<CapabilityCommand<Config>['run']>[0]

const contextOf = ({
  config,
  logger,
  foundation,
  progress,
  interrupted,
}: CommandContext): CapabilityContext => ({
  settings: config,
  logger,
  progress,
  interrupted,
  storage: foundation,
  caughtUp: async () => catchUp(await foundation(), logger),
  vacuum: async ({ tables, projections }) => {
    const { migrationUrl } = await foundation()
    const rows = projections.flatMap((one) => one.tables.map(({ name }) => liveTable(one)(name)))
    return vacuum(migrationUrl, [...tables, ...rows])
  },
})

/** A fault that only the environment can fix is reported as such. */
const withSettings = async <Result>(use: () => Promise<Result>): Promise<Result> => {
  try {
    return await use()
  } catch (cause) {
    throw cause instanceof SettingFault ? new ConfigError(cause.message, { cause }) : cause
  }
}
