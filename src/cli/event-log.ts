import { copyBetween, eventStoreUserOf, prepareEventStore } from '../administration/event-log/event-logs.ts'
import { InputFault } from '../administration/input.ts'
import { eventLogPrefix, eventLogPrefixRule } from '../config.ts'
import { type Command, type CommandContext, type Given, UsageError } from './command.ts'

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

const copyOf = ({ config }: Pick<CommandContext, 'config'>, given: Given) => {
  const source = urlOf('from', given.text('from'), config.EVENT_LOG_FROM)
  if (source === null && config.EVENT_LOG_URL !== undefined)
    throw new UsageError('--from or EVENT_LOG_FROM is required if EVENT_LOG_URL is set')
  const prefix = prefixOf('from-prefix', given.text('from-prefix'))
  const from = source === null ? null : { ...source, prefix }
  const target = urlOf('to', given.text('to'), config.EVENT_LOG_TO)
  if (target === null) throw new UsageError('--to or EVENT_LOG_TO is required')
  const to = {
    ...target,
    prefix: prefixOf('to-prefix', given.text('to-prefix')) ?? config.EVENT_LOG_PREFIX,
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

const copy: Command = {
  name: 'event-log copy',
  action: 'log.change',
  summary:
    'copy an event log to another store; ids, digests and the order within streams stay the same; can be resumed',
  parameters: [
    {
      name: 'from',
      help: `${urlHelp}; default: EVENT_LOG_FROM, or the log in the PostgreSQL of this installation; an embedded PostgreSQL is started if it is not running`,
    },
    {
      name: 'to',
      help: 'the target, in the same form: empty, or an earlier copy of this log; default: EVENT_LOG_TO',
    },
    { name: 'from-prefix', help: 'the EVENT_LOG_PREFIX of the source; default: none' },
    { name: 'to-prefix', help: 'the EVENT_LOG_PREFIX of the target; default: EVENT_LOG_PREFIX' },
  ],
  changes: {
    of: 'records',
    asks: 'on a terminal',
    left: 'A part of the log was copied. Run the same command again to continue where it stopped.',
    plan: async (context, given) => {
      const { from, to } = copyOf(context, given)
      return {
        says: [
          `Copy every event of ${from === null ? "this installation's PostgreSQL" : shownUrl(from.url)} into ${shownUrl(to.url)}.`,
        ],
      }
    },
  },
  run: async ({ config, logger, progress }, given) => {
    const { from, to } = copyOf({ config }, given)
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
    return {
      json: {
        events,
        already,
        streams,
        left_out: leftOut,
        next: nextSteps(to),
      },
    }
  },
}

const prepareOf = (config: CommandContext['config'], given: Given) => {
  const user = eventStoreUserOf(given.required('user'))
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

const prepare: Command = {
  name: 'event-log prepare',
  action: 'log.change',
  summary:
    'create the EventStoreDB user of the service with the rights it needs, or set its password; ' +
    'EVENT_LOG_ADMIN_URL and EVENT_LOG_USER_PASSWORD come from the environment',
  parameters: [{ name: 'user', help: 'the name of the user: letters, digits, . _ -', required: true }],
  changes: {
    of: 'access',
    asks: 'on a terminal',
    left: 'The user may exist without its rights. Run the same command again to add them.',
    plan: async ({ config }, given) => {
      const { user, url } = prepareOf(config, given)
      return {
        says: [
          `Create the user ${user} at ${shownUrl(url)}, or set its password, with the rights that the service needs. The password is that in EVENT_LOG_USER_PASSWORD.`,
        ],
      }
    },
  },
  run: async ({ config, logger }, given) => {
    const { user, url, password } = prepareOf(config, given)
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
}

export const eventLogCommands: readonly Command[] = [copy, prepare]
