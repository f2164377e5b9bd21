import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf } from '../events/catalogue.ts'
import type { SignInRefusal, SignInWay } from '../events/sign-ins.ts'
import { signInStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { provedOperator } from './operator.ts'

/** Sign-ins, refused ones and sign-outs as events. Refused ones are counted, so that guessing fills no log. */
export type SignInEvents = {
  /** Rejects where it cannot be put down: then no one is signed in. */
  signedIn(attempt: { user: string; address: string; knownDevice: boolean; way?: SignInWay }): Promise<void>
  /** Never rejects: the session has ended, whether that can be put down or not. */
  signedOut(user: string): Promise<void>
  /** `user` null where there is none of that name. Puts down the first at once, and those that follow once a minute. */
  refused(attempt: { user: string | null; address: string; reason: SignInRefusal; way?: SignInWay }): void
  /** Puts down what was counted. */
  close(): Promise<void>
}

const windowMs = 60_000

type Counted = { count: number; readonly timer: NodeJS.Timeout; readonly addressHmac: string; since: string }
type SignInEvent = DomainEventOf<'UserSignedIn' | 'UserSignedOut' | 'SignInsRefused'>

/** Counts live in this process: as many as there are users, and two more, for each way to sign in. */
export const createSignInEvents = (
  { eventLog, secrets }: Pick<Foundation, 'eventLog' | 'secrets'>,
  logger: Pick<Logger, 'error'>,
): SignInEvents => {
  const counts = new Map<string, Counted>()
  const writing = new Set<Promise<void>>()
  const record = async (event: SignInEvent, actor: string): Promise<void> => {
    const effectiveAt = new Date().toISOString()
    const stream = signInStream(effectiveAt)
    const id = eventIdOf(stream, randomUUID(), 0)
    await appendNext(eventLog, stream, [encodeEvent(event, { id, actor, effectiveAt })])
  }
  const quietly = (event: SignInEvent, actor: string): Promise<void> => {
    const written = record(event, actor)
      .catch((error: unknown) =>
        logger.error({ err: error, event: event.type }, 'an event of the dashboard is lost'),
      )
      .finally(() => writing.delete(written))
    writing.add(written)
    return written
  }
  const tell = (
    of: { user: string | null; reason: SignInRefusal; way: SignInWay },
    { count, since: window, addressHmac: address_hmac }: Pick<Counted, 'count' | 'since' | 'addressHmac'>,
  ): void => void quietly({ type: 'SignInsRefused', data: { ...of, window, count, address_hmac } }, 'system')
  const flush = (key: string): void => {
    const counted = counts.get(key)
    if (counted === undefined) return
    clearTimeout(counted.timer)
    counts.delete(key)
    const [reason, user, way] = JSON.parse(key) as [SignInRefusal, string | null, SignInWay]
    if (counted.count > 0) tell({ user, reason, way }, counted)
  }
  return {
    signedIn: ({ user, address, knownDevice, way = 'password' }) =>
      record(
        {
          type: 'UserSignedIn',
          data: { user, address_hmac: secrets.addressHmac(address), known_device: knownDevice, way },
        },
        provedOperator(user).actor,
      ),
    signedOut: (user) => quietly({ type: 'UserSignedOut', data: { user } }, provedOperator(user).actor),
    refused: ({ user, address, reason, way = 'password' }) => {
      const key = JSON.stringify([reason, user, way])
      const counted = counts.get(key)
      if (counted !== undefined) {
        counted.count++
        return
      }
      const [addressHmac, since] = [secrets.addressHmac(address), new Date().toISOString()]
      tell({ user, reason, way }, { count: 1, since, addressHmac })
      const timer = setTimeout(() => flush(key), windowMs)
      timer.unref()
      counts.set(key, { count: 0, timer, addressHmac, since })
    },
    close: async () => {
      for (const key of [...counts.keys()]) flush(key)
      await Promise.all(writing)
    },
  }
}
