import { z } from 'zod'
import { type Config, eventLogPrefix, eventLogPrefixRule } from '../../config.ts'
import { onHost } from '../declare.ts'
import { anyText } from '../fields.ts'
import { InputFault, UsageError } from '../input.ts'
import { copyBetween, eventStoreUserOf, prepareEventStore } from './event-logs.ts'

/** Commands that open other stores than those of this installation. */

const urlHelp = 'esdb://… for EventStoreDB, postgres://… for the log in that (migrated) database'
const logUrl = /^(postgres(ql)?|esdb|kurrentdb)(\+discover)?:\/\//
const storeUrl = /^(esdb|kurrentdb)(\+discover)?:\/\//

/**
 * Returns the typed URL, or the URL in the environment, which keeps passwords out of the command line. Messages name the URL by `variable`.
 */
const urlOf = (
  name: 'from' | 'to',
  typed: string | undefined,
  environment: string | undefined,
): { variable: string; url: string } | null => {
  const fromEnvironment = `EVENT_LOG_${name.toUpperCase()}`
  const url = typed ?? environment
  if (url === undefined) return null
  const variable = typed === undefined ? fromEnvironment : `--${name}`
  if (!logUrl.test(url)) throw new UsageError(`${variable}: not the URL of an event log; ${urlHelp}`)
  return { variable, url }
}

const prefixOf = (name: string, typed: string | undefined): string | undefined => {
  if (typed === undefined || typed === '') return undefined
  if (!eventLogPrefix.test(typed)) throw new InputFault(name, eventLogPrefixRule)
  return typed
}

const copyInput = z.object({
  from: anyText({
    label: 'Source',
    help: `${urlHelp}; default: EVENT_LOG_FROM, or the log in the PostgreSQL of this installation; an embedded PostgreSQL is started if it is not running`,
  }).optional(),
  to: anyText({
    label: 'Target',
    help: 'the target, in the same form: empty, or an earlier copy of this log; default: EVENT_LOG_TO',
  }).optional(),
  from_prefix: anyText({
    label: 'Prefix of the source',
    help: 'the EVENT_LOG_PREFIX of the source; default: none',
  }).optional(),
  to_prefix: anyText({
    label: 'Prefix of the target',
    help: 'the EVENT_LOG_PREFIX of the target; default: EVENT_LOG_PREFIX',
  }).optional(),
})

const copyOf = (config: Config, given: z.output<typeof copyInput>) => {
  const source = urlOf('from', given.from, config.EVENT_LOG_FROM)
  if (source === null && config.EVENT_LOG_URL !== undefined)
    throw new UsageError('--from or EVENT_LOG_FROM is required if EVENT_LOG_URL is set')
  const prefix = prefixOf('from-prefix', given.from_prefix)
  const from = source === null ? null : { ...source, prefix }
  const target = urlOf('to', given.to, config.EVENT_LOG_TO)
  if (target === null) throw new UsageError('--to or EVENT_LOG_TO is required')
  const to = {
    ...target,
    prefix: prefixOf('to-prefix', given.to_prefix) ?? config.EVENT_LOG_PREFIX,
  }
  if ((from?.url ?? config.DATABASE_URL) === to.url && from?.prefix === to.prefix)
    throw new UsageError('--from and --to are the same event log')
  return { from, to }
}

const nextSteps = ({ url, prefix }: { url: string; prefix: string | undefined }): string => {
  const named = url.startsWith('postgres')
    ? 'unset EVENT_LOG_URL, and let DATABASE_URL name the target'
    : `set EVENT_LOG_URL to the target${prefix === undefined ? '' : ` and EVENT_LOG_PREFIX to ${prefix}`}`
  return `${named}, run "projection rebuild --all", then "ledger verify", and start the service`
}

const shownUrl = (url: string): string => url.replace(/^([^:]+:\/\/).*@/, '$1')

const copy = onHost({
  name: 'event-log copy',
  action: 'log.change',
  summary:
    'copy an event log to another store; ids, digests and the order within streams stay the same; can be resumed',
  input: copyInput,
  changes: { of: 'records', asks: 'on a terminal' },
  plan: async ({ config }, input) => {
    const { from, to } = copyOf(config, input)
    return `Copy every event of ${from === null ? "this installation's PostgreSQL" : shownUrl(from.url)} into ${shownUrl(to.url)}.`
  },
  run: async ({ config, logger, progress }, input) => {
    const { from, to } = copyOf(config, input)
    const { events, already, streams, leftOut } = await copyBetween(
      config,
      { from, to },
      {
        logger,
        onProgress: ({ events: copied, position, head, elapsedMs }) =>
          progress(
            `${copied} events, position ${position} of ${head}, ${Math.round((copied * 1000) / elapsedMs)} events/s`,
          ),
      },
    )
    return { json: { events, already, streams, left_out: leftOut, next: nextSteps(to) } }
  },
})

const prepareOf = (config: Config, { user: typed }: { readonly user: string }) => {
  const user = eventStoreUserOf(typed)
  const { EVENT_LOG_ADMIN_URL: url, EVENT_LOG_USER_PASSWORD: password } = config
  if (url === undefined || !storeUrl.test(url))
    throw new UsageError(
      'EVENT_LOG_ADMIN_URL: set it to esdb://… with the user and password of an administrator',
    )
  if (password === undefined)
    throw new UsageError('EVENT_LOG_USER_PASSWORD: set it to the password of the new user')
  if (/[?&]tls=false/i.test(url))
    throw new UsageError(
      'EVENT_LOG_ADMIN_URL: an EventStoreDB without TLS has no users, so there is nothing to prepare',
    )
  return { user, url, password }
}

const prepare = onHost({
  name: 'event-log prepare',
  action: 'log.change',
  summary:
    'create the EventStoreDB user of the service with the rights it needs, or set its password; ' +
    'EVENT_LOG_ADMIN_URL and EVENT_LOG_USER_PASSWORD come from the environment',
  input: z.object({ user: anyText({ label: 'User', help: 'the name of the user: letters, digits, . _ -' }) }),
  changes: { of: 'access', asks: 'on a terminal' },
  plan: async ({ config }, input) => {
    const { user, url } = prepareOf(config, input)
    return `Create the user ${user} at ${shownUrl(url)}, or set its password, with the rights that the service needs. The password is that in EVENT_LOG_USER_PASSWORD.`
  },
  run: async ({ config, logger }, input) => {
    const { user, url, password } = prepareOf(config, input)
    const { created, settingsChanged, settings } = await prepareEventStore(
      { variable: 'EVENT_LOG_ADMIN_URL', url },
      { user, password, shared: config.EVENT_LOG_PREFIX !== undefined, logger },
    )
    return {
      json: {
        user,
        created,
        settings_changed: settingsChanged,
        settings,
        next: `set EVENT_LOG_URL to the same hosts with ${user} and its password`,
      },
    }
  },
})

export const declarations = [copy, prepare]
