/**
 * Mistakes that ledgers are known to make, and those of processes that pass commands on to each other. Each wraps what the ledger
 * gets; nothing of it is in the source.
 */
import { AppendConflict } from '../../src/event-log/port.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { noOwners } from '../../src/peers/owners.ts'
import type { Mutant } from './simulation.ts'

type Mistake = {
  readonly name: string
  readonly mutant: Mutant
  /** It is one of processes that pass commands on. */
  readonly passing?: true
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
    name: 'trusts that the owner of a ledger is alone, without the revision',
    passing: true,
    caughtBy: /the ledger verifies|no event id is there twice|is charged once at most/,
    mutant: {
      eventLog: (eventLog, owners) => ({
        ...eventLog,
        append: (stream, expected, events) =>
          eventLog.append(stream, expected, events).catch(async (error: unknown) => {
            const own = owners !== noOwners && owners.ownerOf(stream.slice(ledgerStream('').length)) === null
            if (!own || !(error instanceof AppendConflict)) throw error
            return eventLog.append(stream, (await eventLog.lastRevision(stream)) ?? 'none', events)
          }),
      }),
    },
  },
  {
    name: 'does not look back for a command that arrives late',
    passing: true,
    caughtBy: /no event id is there twice|is charged once at most/,
    mutant: {
      answerPeer: (answer) => (question, from, tell) => {
        const { command } = Object(question)
        const absentUpTo = Number.MAX_SAFE_INTEGER
        const looked =
          command === undefined ? question : { ...Object(question), command: { ...command, absentUpTo } }
        answer(looked, from, tell)
      },
    },
  },
  {
    name: 'believes any append that succeeds to be its own',
    passing: true,
    // It goes on from bytes that the ledger does not hold, and takes the log for another one.
    caughtBy:
      /is as its caller was told|was charged what its caller was told|the ledger verifies|comes to rest: .*the event log is not/,
    mutant: {
      eventLog: (eventLog) => ({
        ...eventLog,
        append: async (...append) => ({ ...(await eventLog.append(...append)), repeated: false }),
      }),
    },
  },
  {
    name: 'does itself under fresh ids what another process did not answer',
    passing: true,
    caughtBy: /is charged once at most/,
    mutant: {
      local: (local) => ({
        ...local,
        submit: (organizationId, command) => {
          const again = command.passed === 'on' && command.kind === 'record'
          return local.submit(organizationId, again ? { ...command, key: `${command.key}/again` } : command)
        },
      }),
    },
  },
  {
    name: 'does itself what another process did not answer, without reading what the ledger got',
    passing: true,
    caughtBy: /no event id is there twice|is charged once at most/,
    mutant: {
      local: (local) => ({
        ...local,
        submit: (organizationId, { absentUpTo, ...command }) =>
          local.submit(organizationId, {
            ...command,
            ...(absentUpTo === undefined || command.passed === 'on' ? {} : { absentUpTo }),
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
