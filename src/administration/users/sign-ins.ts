import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import { appendNext } from '../../event-log/append-next.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import type { SecondFactorRefusal } from '../../events/second-factors.ts'
import type { SignInRefusal, SignInWay } from '../../events/sign-ins.ts'
import { signInStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { provedOperator } from '../operator.ts'

/**
 * Records sign-ins, failed sign-ins and sign-outs as events. Failed sign-ins are counted and recorded together, so that someone who
 * guesses passwords cannot fill the log.
 */
export type SignInEvents = {
  /** Rejects if the sign-in cannot be recorded. The user must not be signed in in this case. */
  signedIn(attempt: { user: string; address: string; knownDevice: boolean; way?: SignInWay }): Promise<void>
  /** Never rejects, because the session has ended even if its end cannot be recorded. */
  signedOut(user: string): Promise<void>
  /**
   * Records the first refusal immediately, and the number of further refusals once a minute. `user` is null if the name is unknown.
   */
  refused(attempt: { user: string | null; address: string; reason: SignInRefusal; way?: SignInWay }): void
  /** Records a wrong code of a second factor after a correct password, in the same way as `refused`. */
  codeRefused(attempt: { user: string; address: string; reason: SecondFactorRefusal }): void
  /** Records the counts that are not recorded yet. */
  close(): Promise<void>
}

const windowMs = 60_000

type Counted = {
  readonly refused: Refused
  count: number
  readonly timer: NodeJS.Timeout
  readonly addressHmac: string
  since: string
}
type SignInEvent = DomainEventOf<'UserSignedIn' | 'UserSignedOut' | 'SignInsRefused' | 'SecondFactorsRefused'>

type Refused =
  | {
      readonly what: 'sign_in'
      readonly user: string | null
      readonly reason: SignInRefusal
      readonly way: SignInWay
    }
  | { readonly what: 'code'; readonly user: string; readonly reason: SecondFactorRefusal }

const eventOf = ({ refused, count, since: window, addressHmac }: Omit<Counted, 'timer'>): SignInEvent => {
  const seen = { window, count, address_hmac: addressHmac }
  return refused.what === 'code'
    ? { type: 'SecondFactorsRefused', data: { user: refused.user, reason: refused.reason, ...seen } }
    : {
        type: 'SignInsRefused',
        data: { user: refused.user, reason: refused.reason, way: refused.way, ...seen },
      }
}

/** Counts are kept in the memory of this process, at most ten for each user and a few others. */
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
        logger.error({ err: error, event: event.type }, 'an event of the dashboard could not be recorded'),
      )
      .finally(() => writing.delete(written))
    writing.add(written)
    return written
  }
  const recordRefusals = (counted: Omit<Counted, 'timer'>): void => void quietly(eventOf(counted), 'system')
  const flush = (key: string): void => {
    const counted = counts.get(key)
    if (counted === undefined) return
    clearTimeout(counted.timer)
    counts.delete(key)
    if (counted.count > 0) recordRefusals(counted)
  }
  const count = (refused: Refused, address: string): void => {
    const key = JSON.stringify(refused)
    const counted = counts.get(key)
    if (counted !== undefined) {
      counted.count++
      return
    }
    const first = { refused, addressHmac: secrets.addressHmac(address), since: new Date().toISOString() }
    recordRefusals({ ...first, count: 1 })
    const timer = setTimeout(() => flush(key), windowMs)
    timer.unref()
    counts.set(key, { ...first, count: 0, timer })
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
    refused: ({ user, address, reason, way = 'password' }) =>
      count({ what: 'sign_in', user, reason, way }, address),
    codeRefused: ({ user, address, reason }) => count({ what: 'code', user, reason }, address),
    close: async () => {
      for (const key of [...counts.keys()]) flush(key)
      await Promise.all(writing)
    },
  }
}
