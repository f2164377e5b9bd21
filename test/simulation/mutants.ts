/** Typical mistakes in ledgers. Each wraps an input of the ledger; the service's own code contains none of them. */
import { AppendConflict } from '../../src/event-log/port.ts'
import { LedgerOutcomeUnknown, LedgerUnavailable } from '../../src/ledger/command.ts'
import type { Mutant } from './simulation.ts'

type Mistake = {
  readonly name: string
  readonly mutant: Mutant
  /** The message of the check that finds the mistake. */
  readonly caughtBy: RegExp
  /** A seed that finds the mistake, if the first ones do not. The exhaustive run searches from the first seed. */
  readonly seed?: number
}

export const mistakes: readonly Mistake[] = [
  {
    name: 'appends again at the new revision without looking for its own commands in the earlier events',
    caughtBy: /is charged at most once|no event id occurs twice/,
    mutant: {
      // When pages of events are read for folding or searching, the events lose the ids by which they belong to a command.
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
    name: 'gives a repeated call new ids',
    caughtBy: /is charged at most once/,
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
    caughtBy:
      /was acknowledged and is in the ledger|has the events that its caller got|is at the revision that its caller got/,
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
    name: 'trusts a snapshot whose content is older than its stated revision',
    caughtBy: /the ledger verifies|never goes below|which contains less|the sum of all movements/,
    mutant: { snapshotContent: (cut) => Math.max(1, cut - 8) },
  },
  {
    name: 'appends again at the revision named by a conflict, without reading the events there',
    caughtBy: /the ledger verifies|no event id occurs twice|is charged at most once/,
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
    name: 'does not look for the earlier result of a repeated command',
    caughtBy: /no event id occurs twice|is charged at most once/,
    mutant: {
      ledger: () => (ledger) => ({
        ...ledger,
        submit: (organizationId, { absentUpTo, ...command }) => ledger.submit(organizationId, command),
      }),
    },
  },
  {
    name: 'believes that every successful append is its own',
    // The ledger continues from bytes that are not in its stream, and so concludes that the log was replaced.
    caughtBy:
      /has the events that its caller got|was charged the amount that its caller got|the ledger verifies|comes to rest: .*(?:the event log is not|the ledger cannot be)/,
    mutant: {
      eventLog: (eventLog) => ({
        ...eventLog,
        append: async (...append) => ({ ...(await eventLog.append(...append)), repeated: false }),
      }),
    },
  },
  {
    name: 'refuses a call whose append may still be written',
    seed: 8,
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
    seed: 3,
    caughtBy: /the rows equal a fold of the log/,
    mutant: { checkpointApart: true },
  },
]
