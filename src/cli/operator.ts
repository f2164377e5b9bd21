import { userInfo } from 'node:os'
import { labelOf } from '../administration/input.ts'
import { labelledOperator, type Operator, provedOperator } from '../administration/operator.ts'
import { checkTokenForm, userOfToken } from '../administration/users/operator-tokens.ts'
import { userNameMax } from '../administration/users/users.ts'
import { type Config, ConfigError } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { UsageError } from './command.ts'

/**
 * The operator of a command: the person whose `OPERATOR_TOKEN` it is; without one, the name in `--as` or `OPERATOR`; without that, the
 * account that types the command. Errors that can be found before anything is opened
 * are reported here.
 *
 * Throws `ConfigError`, `InputFault` and `UsageError`, all of which are wrong usage.
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
      throw new UsageError(`--as: the OPERATOR_TOKEN is that of ${user}; unset it, or leave --as out`)
    return { ...provedOperator(user), role }
  }
}

/** An actor has at most 128 characters, and `cli:` is shorter than `user:`. */
const labelMax = userNameMax

/** The account on this machine that types the command: not a proof, but better than no name. In a container there may be none. */
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
