import { type Command, UsageError } from '../command.ts'
import { copyEventLog } from '../copy-event-log.ts'
import { openEventLog } from '../foundation.ts'

const urlHelp = 'esdb://… for EventStoreDB, postgres://… for the log in that (migrated) database'

export const eventLogCommands: readonly Command[] = [
  {
    name: 'event-log copy',
    summary:
      'copy an event log to another engine: ids, order within streams and digests as they are; can be resumed',
    parameters: [
      { name: 'from', help: urlHelp, required: true },
      { name: 'to', help: `${urlHelp}; empty, or a copy begun earlier`, required: true },
    ],
    run: async ({ logger, progress }, given) => {
      const [fromUrl, toUrl] = [given.required('from'), given.required('to')]
      for (const [name, url] of [
        ['from', fromUrl],
        ['to', toUrl],
      ] as const)
        if (!/^(postgres(ql)?|esdb|kurrentdb)(\+discover)?:\/\//.test(url))
          throw new UsageError(`--${name}: not the URL of an event log; ${urlHelp}`)
      if (fromUrl === toUrl) throw new UsageError('--from and --to are the same event log')
      const from = await openEventLog(fromUrl, logger)
      const to = await openEventLog(toUrl, logger)
      try {
        const copied = await copyEventLog({
          from,
          to,
          onProgress: ({ events, position, head, elapsedMs }) =>
            progress(
              `${events} events, position ${position} of ${head}, ${Math.round((events * 1000) / elapsedMs)} events/s`,
            ),
        })
        return {
          json: { ...copied, next: 'set EVENT_LOG_URL, run "ledger verify" and "projection rebuild --all"' },
        }
      } finally {
        await from.close()
        await to.close()
      }
    },
  },
]
