/** Mistakes that ledgers are known to make. Each wraps what the ledger gets; nothing of it is in the source. */
import { AppendConflict } from '../../src/event-log/port.ts'
import { LedgerOutcomeUnknown, LedgerUnavailable } from '../../src/ledger/write/commit.ts'
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
    name: 'appends again at the revision that a conflict names, without reading what is there',
    caughtBy: /the ledger verifies|no event id is there twice|is charged once at most/,
    mutant: {
      eventLog: (eventLog) => ({
        ...eventLog,
        append: (stream, expected, events) =>
          eventLog.append(stream, expected, events).catch((error: unknown) => {
            if (!(error instanceof AppendConflict)) throw error
            return eventLog.append(stream, error.actual === -1 ? 'none' : error.actual, events)
          }),
      }),
    },
  },
  {
    name: 'does not look back for a command that comes again',
    caughtBy: /no event id is there twice|is charged once at most/,
    mutant: {
      ledger: () => (ledger) => ({
        ...ledger,
        submit: (organizationId, { absentUpTo, ...command }) => ledger.submit(organizationId, command),
      }),
    },
  },
  {
    name: 'believes any append that succeeds to be its own',
    // It goes on from bytes that the ledger does not hold, and takes the log for another one.
    caughtBy:
      /is as its caller was told|was charged what its caller was told|the ledger verifies|comes to rest: .*(?:the event log is not|the ledger cannot be)/,
    mutant: {
      eventLog: (eventLog) => ({
        ...eventLog,
        append: async (...append) => ({ ...(await eventLog.append(...append)), repeated: false }),
      }),
    },
  },
  {
    name: 'refuses a call whose append may still be written',
    caughtBy: /was refused, so nothing is charged|so its outcome was unknown/,
    mutant: {
      ledger: () => (ledger) => ({
        ...ledger,
        submit: (organizationId, command) =>
          ledger.submit(organizationId, command).catch((error: unknown) => {
            throw error instanceof LedgerOutcomeUnknown ? new LedgerUnavailable(error.message) : error
          }),
      }),
    },
  },
  {
    name: 'writes the checkpoint outside the transaction of the rows',
    caughtBy: /the rows are what the log comes to/,
    mutant: { checkpointApart: true },
  },
]
