import { userInfo } from 'node:os'
import type { AnyDeclared, Context, Host } from '../administration/declare.ts'
import { labelOf, UsageError } from '../administration/input.ts'
import { labelledOperator, type Operator, provedOperator } from '../administration/operator.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { mayDo, rolesThatMay } from '../administration/roles.ts'
import { checkTokenForm, userOfToken } from '../administration/users/operator-tokens.ts'
import { userNameMax } from '../administration/users/users.ts'
import { type Config, ConfigError, twoPersonOf } from '../config.ts'
import { addressesNow } from '../foundation/addresses.ts'
import type { Closing } from '../foundation/closing.ts'
import { type Foundation, openFoundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/command.ts'

/** The service waits until the database recovers, but a person is waiting for a command. */
const databaseWaitMs = 10_000

type Machine = Pick<Host, 'config' | 'logger' | 'progress'>

/**
 * Returns the host of one command. A malformed token is refused immediately, before any store is opened. `closing` closes the stores.
 */
export const hostOf = (
  declared: AnyDeclared,
  machine: Machine,
  { as, closing }: { readonly as: string | undefined; readonly closing: Closing },
): Host => {
  const { config, logger } = machine
  const operatorIn = operatorOf(config, as)
  let opened: Context | undefined
  return {
    ...machine,
    waitMs: databaseWaitMs,
    open: async (options) => {
      if (opened !== undefined) return opened
      const foundation = await openFoundation(config, { logger, waitMs: databaseWaitMs, ...options })
      closing.add(foundation.close)
      const operator = await operatorIn(foundation)
      requirePermission(operator, declared)
      opened = contextOf(foundation, operator, machine)
      return opened
    },
    // Loaded on demand, because few commands need these modules.
    examine: async () => (await import('../start/doctor.ts')).examine(process.env),
    completion: async (shell) => (await import('./completion.ts')).completionScript(shell),
  }
}

export const contextOf = (
  foundation: Foundation,
  operator: Operator,
  { config, logger, progress }: Machine,
): Context => ({
  foundation,
  operator,
  logger,
  progress,
  requestedAt: new Date().toISOString(),
  twoPerson: twoPersonOf(config),
  outside: async () => (await import('../start/capabilities.ts')).openOutside(config),
  dashboardUrl: async () => config.DASHBOARD_URL ?? (await addressesNow(config)).dashboardUrl,
  caughtUp: () => catchUp(foundation, logger),
  pixel: withPixel({ ...foundation, logger }),
  data: async () => {
    const { capabilityDataOf } = await import('../administration/capabilities.ts')
    return capabilityDataOf(foundation, { settings: config, logger })
  },
})

const withPixel =
  (options: Pick<Foundation, 'eventLog' | 'url'> & Pick<Host, 'logger'>): Context['pixel'] =>
  async (use) => {
    const { createPixelControls } = await import('../capabilities/index.ts')
    const pixel = createPixelControls(options)
    try {
      return await use(pixel)
    } finally {
      await pixel.close()
    }
  }

/**
 * Throws `CommandRefused` if the user's role does not permit the command. An operator without a token has no role and is not
 * restricted, because access to the database and its secrets is enough to create a token for any user.
 */
export const requirePermission = (
  { actor, role }: Operator,
  { name, action }: Pick<AnyDeclared, 'name' | 'action'>,
): void => {
  if (role === null || mayDo(role, action)) return
  throw new CommandRefused(
    `${actor.slice('user:'.length)} has the role ${role}, but "${name}" requires ${rolesThatMay(action)}`,
  )
}

/**
 * Returns the operator of a command: the owner of `OPERATOR_TOKEN`, or else the name in `--as` or `OPERATOR`, or else the operating-system
 * account that runs the command. Throws `ConfigError`, `InputFault` or `UsageError`, if possible before anything is opened.
 */
export const operatorOf = (
  { OPERATOR_TOKEN: token, OPERATOR }: Config,
  as: string | undefined,
): ((foundation: Foundation) => Promise<Operator>) => {
  const label = as === undefined ? labelOfEnvironment(OPERATOR) : labelOf('as', as, labelMax)
  if (token === undefined) return async () => labelledOperator(label ?? accountName())
  checkTokenForm(token)
  return async (foundation) => {
    const { user, role } = await userOfToken(foundation, token)
    if (as !== undefined && as !== user)
      throw new UsageError(`--as: OPERATOR_TOKEN belongs to ${user}; unset it, or omit --as`)
    return { ...provedOperator(user), role }
  }
}

/** An actor has at most 128 characters, and `cli:` is shorter than `user:`. */
const labelMax = userNameMax

/**
 * Returns the name of the operating-system account that runs the command. The name does not prove an identity. A container may have
 * no account.
 */
const accountName = (): string => {
  try {
    return labelOf('account', userInfo().username, labelMax)
  } catch {
    return `uid-${process.getuid?.() ?? 'unknown'}`
  }
}

const labelOfEnvironment = (text: string | undefined): string | null => {
  if (text === undefined) return null
  try {
    return labelOf('OPERATOR', text, labelMax)
  } catch (error) {
    throw new ConfigError(`OPERATOR: ${error instanceof Error ? error.message : String(error)}`)
  }
}
