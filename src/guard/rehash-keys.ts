import type { Logger } from 'pino'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { EventLog } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import { keyStream } from '../events/streams.ts'
import type { Secrets } from './secrets.ts'

/**
 * After a rotation of SECRET_KEY: what is kept of an API key's secret is made anew when the key is used, which is the only time
 * the secret is here. Until then the former key checks it. No call waits for this, and one that fails is made up for by
 * the next use of the key.
 */
type Rehashing = {
  /** For a key whose secret was just found to be right. */
  rehash(keyId: string, secret: string): void
  /** Resolves when nothing is under way. */
  settled(): Promise<void>
}

/** Appends at once; a call that comes meanwhile leaves its key for its next use. */
const underWayMax = 4
/** Of keys that were made anew and are not heard of yet, or failed: then they are looked at again. */
const triedMax = 10_000

export const createRehashing = ({
  eventLog,
  secrets,
  logger,
}: {
  readonly eventLog: Pick<EventLog, 'append' | 'read'>
  readonly secrets: Pick<Secrets, 'keyId' | 'apiKeyHmac'>
  readonly logger: Pick<Logger, 'warn'>
}): Rehashing => {
  const tried = new Set<string>()
  const underWay = new Set<Promise<void>>()
  const append = async (keyId: string, secret: string): Promise<void> => {
    const secretKey = secrets.keyId()
    const data = { key_id: keyId, secret_hmac: secrets.apiKeyHmac(secret), secret_key: secretKey }
    const stream = keyStream(keyId)
    await appendNext(eventLog, stream, [
      encodeEvent(
        { type: 'ApiKeyRehashed', data },
        {
          id: eventIdOf(stream, `rehash/${secretKey}`, 0),
          actor: 'system',
          effectiveAt: new Date().toISOString(),
        },
      ),
    ])
  }
  return {
    rehash: (keyId, secret) => {
      const one = `${keyId} ${secrets.keyId()}`
      if (underWay.size >= underWayMax || tried.has(one)) return
      if (tried.size >= triedMax) tried.clear()
      tried.add(one)
      const appending = append(keyId, secret)
        .catch((error: unknown) => {
          tried.delete(one)
          logger.warn({ err: error, keyId }, "an API key's hash is not renewed yet")
        })
        .finally(() => underWay.delete(appending))
      underWay.add(appending)
    },
    settled: async () => {
      while (underWay.size > 0) await Promise.all(underWay)
    },
  }
}
