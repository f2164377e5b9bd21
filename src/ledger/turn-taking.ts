/**
 * How processes that write one ledger at the same time come to their turns. Pure.
 *
 * The first append at a place of the stream wins it. The winner has an advantage for the next place, too: it has nothing to
 * read and few commands to decide, while the others read its events and decide all that waits, so that they may lose for
 * ever. A process that loses twice in a row therefore tries with fewer commands, which takes less time, until it wins.
 *
 * No one waits: where nothing competes, nothing changes.
 */
export type Turn = {
  /** Batches in a row that another process was ahead of. */
  readonly losses: number
  /** How many commands the next batch may hold. */
  readonly commandsMax: number
}

/** The last batch was written. */
export const freeTurn: Turn = { losses: 0, commandsMax: Number.POSITIVE_INFINITY }

/** One loss happens to everyone. From the second on, the next batch is half of the one that was lost, and never empty. */
export const afterLoss = ({ losses }: Turn, commands: number): Turn => ({
  losses: losses + 1,
  commandsMax: losses === 0 ? freeTurn.commandsMax : Math.max(1, commands >> 1),
})

/** The limits of the next batch. */
export const limitsOf = <Limits extends { readonly batchCommandsMax: number }>(
  { commandsMax }: Turn,
  limits: Limits,
): Limits => (commandsMax >= limits.batchCommandsMax ? limits : { ...limits, batchCommandsMax: commandsMax })
