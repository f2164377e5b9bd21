import type { Logger } from 'pino'
import { type NamedEventLog, openNamed, telling } from '../foundation/open-event-log.ts'
import { type Copied, type CopyProgress, copyEventLog } from './copy-event-log.ts'
import { InputFault } from './input.ts'

/** Opens two event logs and copies all of one into the other. Throws `ConfigError` where one cannot be used. */
export const copyBetween = async (
  { from, to }: { from: NamedEventLog; to: NamedEventLog },
  { logger, onProgress }: { logger: Logger; onProgress: (progress: CopyProgress) => void },
): Promise<Copied> => {
  const source = await openNamed(from, logger)
  const target = await openNamed(to, logger)
  try {
    await telling(from, () => source.head())
    await telling(to, () => target.head())
    return await copyEventLog({ from: source, to: target, onProgress })
  } finally {
    await source.close()
    await target.close()
  }
}

/** A name for the EventStoreDB user the service works as. */
export const eventStoreUserOf = (text: string): string => {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(text))
    throw new InputFault('user', `"${text}" is not a name of letters, digits, . _ and -`)
  return text
}

/**
 * Makes the EventStoreDB user the service works as, or gives it a new password, with the rights it needs. `shared`: other
 * software uses the same event store. Throws `ConfigError` where the administrator's URL cannot be used.
 */
export const prepareEventStore = async (
  admin: NamedEventLog,
  { user, password, shared, logger }: { user: string; password: string; shared: boolean; logger: Logger },
) => {
  // Loaded only where it is used: the client and its protocol take memory and a quarter of a second.
  const { prepareEventStoreDb } = await import('../event-log/eventstoredb/prepare.ts')
  const adminUrl = admin.url.replace(/^kurrentdb/, 'esdb')
  return telling(admin, () => prepareEventStoreDb({ adminUrl, user, password, shared, logger }))
}
