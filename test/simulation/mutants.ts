/** Five mistakes that ledgers are known to make. Each wraps what the ledger gets; nothing of it is in the source. */
import type { Mutant } from './simulation.ts'

type Mistake = {
  readonly name: string
  readonly mutant: Mutant
  /** How it shows, in the words of the check that sees it. */
  readonly caughtBy: RegExp
}

export const mistakes: readonly Mistake[] = [
  {
    name: 'appends again at the new revision without looking for its own commands in what was appended before',
    caughtBy: /is charged once at most|no event id is there twice/,
    mutant: {
      // What is read page by page, to fold or to look through it, is not recognized as any command's.
      eventLog: (eventLog) => ({
        ...eventLog,
        read: async (stream, options) => {
          const page = await eventLog.read(stream, options)
          if (options.max === 1) return page
          return page.map((event) => ({
            ...event,
            id: `unknown ${event.id}`,
            metadata: event.metadata.replace(/,"causation_id":"[^"]*"/, ''),
          }))
        },
      }),
    },
  },
  {
    name: 'gives a call that is tried again fresh ids',
    caughtBy: /is charged once at most/,
    mutant: {
      ledger: () => {
        const tries = new Map<string, number>()
        return (ledger) => ({
          ...ledger,
          submit: (organizationId, command) => {
            const tried = tries.get(command.key) ?? 0
            tries.set(command.key, tried + 1)
            const fresh = command.kind === 'record' && tried > 0
            return ledger.submit(
              organizationId,
              fresh ? { ...command, key: `${command.key}/${tried}` } : command,
            )
          },
        })
      },
    },
  },
  {
    name: 'answers before the append is durable',
    caughtBy: /was acknowledged and is in the ledger|is as its caller was told|is where its caller was told/,
    mutant: {
      eventLog: (eventLog) => ({
        ...eventLog,
        append: async (stream, expected, events) => {
          eventLog.append(stream, expected, events).catch(() => undefined)
          return { revision: (expected === 'none' ? -1 : expected) + events.length }
        },
      }),
    },
  },
  {
    name: 'trusts a snapshot whose content is older than it says',
    caughtBy: /the ledger verifies|never goes below|which does not hold them|the sum of all movements/,
    mutant: { snapshotContent: (cut) => Math.max(1, cut - 8) },
  },
  {
    name: 'writes the checkpoint outside the transaction of the rows',
    caughtBy: /the rows are what the log comes to/,
    mutant: { checkpointApart: true },
  },
]
