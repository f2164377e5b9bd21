import { declarations } from '../administration/declarations.ts'
import { capabilities } from '../capabilities/index.ts'
import { auditCommands } from './audit.ts'
import { backupCommands } from './backup.ts'
import { commandsOf } from './capability.ts'
import type { Command } from './command.ts'
import { completionCommand } from './completion.ts'
import { commandOf } from './declared.ts'
import { doctorCommand } from './doctor.ts'
import { epochKeyCommands } from './epoch-key.ts'
import { eventLogCommands } from './event-log.ts'
import { keyCommands } from './key.ts'
import { ledgerCommands } from './ledger.ts'
import { migrateCommand } from './migrate.ts'
import { pixelCommands } from './pixel.ts'
import { priceCommands } from './price.ts'
import { rerateCommands } from './rerate.ts'
import { secretsCommands } from './secrets.ts'
import { seedCommands } from './seed.ts'
import { statementCommands } from './statement.ts'
import { userCommands } from './user.ts'
import { webhookCommands } from './webhook.ts'

/** Every command, in the order of the help. */
export const commands: readonly Command[] = [
  ...declarations.map(commandOf),
  ...keyCommands,
  ...priceCommands,
  ...ledgerCommands,
  ...statementCommands,
  ...rerateCommands,
  ...auditCommands,
  ...eventLogCommands,
  ...backupCommands,
  ...seedCommands,
  ...userCommands,
  ...webhookCommands,
  ...pixelCommands,
  ...commandsOf(capabilities),
  ...epochKeyCommands,
  ...secretsCommands,
  doctorCommand,
  migrateCommand,
  completionCommand(() => commands),
]
