import { capabilityDeclarations } from './capabilities.ts'
import { creditCommands } from './credits/commands.ts'
import { creditQueries } from './credits/queries.ts'
import type { Declared } from './declare.ts'
import { eventLogCommands } from './event-log/commands.ts'
import { eventLogQueries } from './event-log/queries.ts'
import { jobDeclarations } from './jobs/commands.ts'
import { keyDeclarations } from './keys/commands.ts'
import { ledgerDeclarations } from './ledgers/commands.ts'
import { ledgerExports } from './ledgers/exports.ts'
import { ledgerQueries } from './ledgers/queries.ts'
import { organizationDeclarations } from './organizations/commands.ts'
import { pixelDeclarations } from './pixel/commands.ts'
import { priceCommands } from './prices/commands.ts'
import { priceQueries } from './prices/queries.ts'
import { projectionDeclarations } from './projections/commands.ts'
import { rerateCommands } from './rerates/commands.ts'
import { rerateQueries } from './rerates/queries.ts'
import { sourceDeclarations } from './sources/queries.ts'
import { userCommands } from './users/commands.ts'
import { userQueries } from './users/queries.ts'
import { webhookDeclarations } from './webhooks/commands.ts'

/** Every command and query of administration, in the order of the help. */
export const declarations: readonly Declared[] = [
  ...organizationDeclarations,
  ...creditCommands,
  ...creditQueries,
  ...priceCommands,
  ...priceQueries,
  ...rerateCommands,
  ...rerateQueries,
  ...ledgerQueries,
  ...ledgerExports,
  ...ledgerDeclarations,
  ...projectionDeclarations,
  ...jobDeclarations,
  ...keyDeclarations,
  ...webhookDeclarations,
  ...eventLogQueries,
  ...eventLogCommands,
  ...userCommands,
  ...userQueries,
  ...pixelDeclarations,
  ...sourceDeclarations,
  ...capabilityDeclarations,
]

/** The declaration of that name. Throws if there is none. */
export const declarationNamed = (name: string): Declared => {
  const declared = declarations.find((one) => one.name === name)
  if (declared === undefined) throw new Error(`there is no command or query "${name}"`)
  return declared
}
