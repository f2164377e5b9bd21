import type { Operator } from '../administration/operator.ts'
import { type Action, mayDo, rolesThatMay } from '../administration/roles.ts'
import { CommandRefused } from '../ledger/command.ts'
import type { Command } from './command.ts'

/** The action of each command in the table of roles (`administration/roles.ts`). */

export const commandActions: Readonly<Record<string, Action>> = {
  'event-log copy': 'log.change',
  'event-log prepare': 'log.change',
  'backup create': 'log.change',
  'backup verify': 'log.change',
  'backup restore': 'installation.change',
  seed: 'installation.change',
  'epoch-key list': 'system.read',
  'epoch-key abandon': 'log.change',
  'secrets status': 'system.read',
  'secrets rotate': 'installation.change',
}

/** A command that is not in the table is for admins, whether or not it changes anything. */
export const actionOf = ({ name, action }: Pick<Command, 'name' | 'action'>): Action =>
  action ?? commandActions[name] ?? 'installation.change'

/**
 * Throws `CommandRefused` if the person's role does not permit the command. Without a token no person is proved: the operator
 * has access to the database and its secrets, and could create a token for any user.
 */
export const requirePermission = (
  { actor, role }: Operator,
  command: Pick<Command, 'name' | 'action'>,
): void => {
  const action = actionOf(command)
  if (role === null || mayDo(role, action)) return
  throw new CommandRefused(
    `${actor.slice('user:'.length)} is ${role}, and "${command.name}" is for ${rolesThatMay(action)}`,
  )
}
