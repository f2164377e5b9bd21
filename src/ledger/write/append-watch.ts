import type { Logger } from 'pino'
import { appendNext } from '../../event-log/append-next.ts'
import { eventIdOf } from '../../event-log/event-id.ts'
import type { EventLog } from '../../event-log/port.ts'
import { encodeEvent } from '../../event-log/stored-event.ts'
import { operatorStream } from '../../events/streams.ts'

/**
 * Whether the event log takes appends: a full disk answers every read and refuses every call. A process whose appends
 * fail reports it and is sent no more calls, so it has to find out by itself when they succeed again. It tries with the
 * one fact that is worth recording then: that they do, and since when they did not.
 */
type AppendWatch = {
  failed(error: Error): void
  succeeded(): void
  /** Null while appends succeed, as far as is known. */
  failure(): Error | null
}

const tryMs = 5_000

export const createAppendWatch = ({
  eventLog,
  logger,
  now,
}: {
  eventLog: Pick<EventLog, 'append' | 'read'>
  logger: Logger
  now: () => number
}): AppendWatch => {
  let failing: { readonly since: string; error: Error } | undefined
  let trying: NodeJS.Timeout | undefined

  const succeeded = (): void => {
    if (failing === undefined) return
    logger.info({ since: failing.since }, 'ledger: appends succeed again')
    failing = undefined
    clearTimeout(trying)
  }

  const tryLater = (since: string): void => {
    trying = setTimeout(() => {
      const at = new Date(now()).toISOString()
      appendNext(eventLog, operatorStream, [
        encodeEvent(
          { type: 'AppendsResumed', data: { failing_since: since } },
          {
            id: eventIdOf(operatorStream, `appends-resumed/${since}/${process.pid}`, 0),
            actor: 'system',
            effectiveAt: at,
          },
        ),
      ]).then(succeeded, () => {
        if (failing?.since === since) tryLater(since)
      })
    }, tryMs)
    trying.unref()
  }

  return {
    succeeded,
    failure: () => failing?.error ?? null,
    failed: (error) => {
      if (failing !== undefined) {
        failing.error = error
        return
      }
      failing = { since: new Date(now()).toISOString(), error }
      logger.fatal({ err: error }, 'ledger: appends fail; no calls can be answered until they succeed')
      tryLater(failing.since)
    },
  }
}
