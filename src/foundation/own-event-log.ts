import type pg from 'pg'
import type { Logger } from 'pino'
import { defaultPriceBook } from '../billing/price-book.ts'
import { nextVersion, publishedAt, standingBooks } from '../billing/prices.ts'
import { neededRules } from '../billing/tariff.ts'
import { type Config, ConfigError } from '../config.ts'
import { appendChained } from '../event-log/append-chained.ts'
import { appendUntilKnown } from '../event-log/append-until-known.ts'
import { AppendConflict, type EventLog, LogRewritten } from '../event-log/port.ts'
import { readIfAny } from '../event-log/read-stream.ts'
import { encodeEvent, eventIdOf } from '../event-log/stored-event.ts'
import type { PriceBookPublished } from '../events/prices.ts'
import { priceBookStream } from '../events/streams.ts'
import type { InstallationKey } from '../guard/secrets/secrets.ts'
import { readPricesAsTheyAre } from '../ledger/prices/price-stream.ts'
import { readCheckpoints, strayCheckpoints, strayMessage } from '../projector/checkpoints.ts'
import type { Closing } from './closing.ts'
import type { Database } from './database.ts'
import { openNamed, telling } from './open-event-log.ts'

type OwnEventLogOptions = {
  readonly logger: Logger
  /** Opens the log even if the read models were built from another log. Needed by the commands that correct that. */
  readonly anyEventLog: boolean
  /** Opens the log even if it was restored from an older copy. Needed by the commands that examine or correct that. */
  readonly anyHistory: boolean
  /** Called before anything is written to the log. If it throws, the start fails. */
  readonly openKey: (eventLog: EventLog) => Promise<InstallationKey>
  readonly closing: Closing
}

/**
 * Opens this installation's event log. Checks that it matches the read models, contains the installation key and is writable, and that a price
 * book is in force. `name` identifies the log without secrets. Throws `ConfigError`.
 */
export const openOwnEventLog = async (
  config: Config,
  { url, pool }: Database,
  { logger, anyEventLog, anyHistory, openKey, closing }: OwnEventLogOptions,
): Promise<{ eventLog: EventLog; name: string; key: InstallationKey }> => {
  const { EVENT_LOG_URL, EVENT_LOG_PREFIX: prefix } = config
  const name = nameOfEventLog(config)
  const named = { variable: 'EVENT_LOG_URL', url: EVENT_LOG_URL ?? url, prefix }
  const eventLog = await openNamed(named, logger)
  closing.add(() => eventLog.close())
  const key = await telling(named, async () => {
    // The log must answer before its name is stored.
    await eventLog.head()
    if (!anyEventLog) await sameEventLog(pool, name)
    if (!anyEventLog && !anyHistory) await sameHistory(pool, eventLog)
    const opened = await openKey(eventLog)
    await keepPriceBookComplete(eventLog, logger)
    if (EVENT_LOG_URL !== undefined) await mayAppend(eventLog)
    return opened
  })
  return { eventLog, name, key }
}

/** Returns the name of the configured event log, without secrets. */
export const nameOfEventLog = ({ EVENT_LOG_URL: url, EVENT_LOG_PREFIX: prefix }: Config): string =>
  url === undefined ? 'PostgreSQL' : nameOf(url, prefix)

/** Returns the name of the log from which the read models were built, or undefined before the first start. */
export const knownEventLog = async (pool: pg.Pool): Promise<string | undefined> =>
  (await pool.query<{ event_log: string }>('select event_log from installation')).rows[0]?.event_log

export const rememberEventLog = async (pool: pg.Pool, name: string): Promise<void> => {
  await pool.query('update installation set event_log = $1', [name])
}

/** Returns the scheme, hosts and path of a connection string, and the prefix. These identify the log and contain no secret. */
const nameOf = (url: string, prefix = ''): string =>
  `${url.replace(/^([^:]+:\/\/)(.*@)?/, '$1').split('?', 1)[0]}${prefix === '' ? '' : `#${prefix}`}`

/** Refuses another event log, because its positions refer to other events, so the read models cannot continue with it. */
const sameEventLog = async (pool: pg.Pool, name: string): Promise<void> => {
  await pool.query('insert into installation (event_log) values ($1) on conflict do nothing', [name])
  const known = await knownEventLog(pool)
  if (known === name) return
  if (known !== undefined && shareHost(known, name)) return rememberEventLog(pool, name)
  throw new ConfigError(
    `EVENT_LOG_URL: the read models of this database were built from ${known}, but the event log is now ${name}. ` +
      'If you have not copied the events yet, copy them with "event-log copy". Then run "projection rebuild --all".',
  )
}

/** A cluster can be configured with other seed hosts than before. If they share a host, it is the same cluster. */
const shareHost = (known: string, now: string): boolean => {
  if (known.split('#', 2)[1] !== now.split('#', 2)[1]) return false
  const [before, after] = [known, now].map(
    (name) =>
      new Set(
        name
          .replace(/^[^:]+:\/\//, '')
          .split(/[/#]/, 1)[0]
          ?.split(','),
      ),
  )
  return known.includes('://') && now.includes('://') && [...(before ?? [])].some((host) => after?.has(host))
}

/** Refuses a log that was restored from an older copy, because later revocations and charges would then exist only in the read models. */
const sameHistory = async (pool: pg.Pool, eventLog: EventLog): Promise<void> => {
  const stray = await strayCheckpoints(eventLog, await readCheckpoints(pool))
  if (stray.length > 0) throw new ConfigError(`EVENT_LOG_URL: ${strayMessage(stray)}`)
}

const isDefault = ({ approver }: PriceBookPublished): boolean => approver === defaultPriceBook.approver

/** The rules that calls need in this release, but that a book does not contain. */
const rulesLackedBy = (book: PriceBookPublished): string[] =>
  neededRules().filter((id) => book.rules.every(({ rule }) => rule !== id))

/**
 * Publishes the default price book in a new installation. If that book is still in force after an upgrade, publishes a new version with the new
 * rules. Never adds prices to a book that an operator published.
 */
export const keepPriceBookComplete = async (eventLog: EventLog, logger: Logger): Promise<void> => {
  const { prices, revision } = await readPricesAsTheyAre(eventLog)
  const books = standingBooks(prices)
  const latest = books.at(-1)
  if (latest !== undefined && !isDefault(latest) && rulesLackedBy(latest).length > 0)
    logger.warn(
      { priceBook: latest.version, from: latest.effective_from, rules: rulesLackedBy(latest) },
      'a price book does not contain these rules, so calls that need them are refused; propose a book with them ("price propose") and approve it',
    )
  const current = publishedAt(prices, Date.now())
  if (current !== null && (!isDefault(current) || rulesLackedBy(current).length === 0)) return
  const version = nextVersion(prices)
  // The new version applies from the same time. That changes no charge, because calls without a rule were refused.
  const effective_from = current?.effective_from ?? defaultPriceBook.effective_from
  try {
    await appendChained(eventLog, priceBookStream, revision === -1 ? 'none' : revision, [
      encodeEvent(
        { type: 'PriceBookPublished', data: { ...defaultPriceBook, version, effective_from } },
        {
          id: eventIdOf(priceBookStream, version === 1 ? 'default' : `default/${version}`, 0),
          actor: 'system',
          effectiveAt: effective_from,
        },
      ),
    ])
  } catch (error) {
    // Another process has already published the book.
    if (!(error instanceof AppendConflict)) throw error
  }
}

/** Appends the first price book again. This changes nothing, but fails if the configured user cannot write to the log. */
export const mayAppend = async (eventLog: EventLog): Promise<void> => {
  const [first] = await readIfAny(eventLog, priceBookStream, { max: 1 })
  if (first !== undefined) await appendUntilKnown(eventLog, priceBookStream, 'none', [first])
}

/** Returns a log that also calls `tell` if a subscription detects that the log was rewritten. */
export const tellingRewritten = (eventLog: EventLog, tell: (error: Error) => void): EventLog => ({
  ...eventLog,
  async *subscribe(options) {
    try {
      yield* eventLog.subscribe(options)
    } catch (error) {
      if (error instanceof LogRewritten) tell(error)
      throw error
    }
  },
})
