import { writeSync } from 'node:fs'
import pino, { type DestinationStream, type Logger } from 'pino'
import { prettyFactory } from 'pino-pretty'
import { codeOf } from '../event-log/directory.ts'

/** Logs to standard error, because standard output is for results. Lines are readable text on a terminal, and otherwise JSON. */
export const createLogger = (level: string): Logger =>
  pino({ level, serializers: { err: loggedError } }, process.stderr.isTTY ? onTerminal() : toDescriptor(2))

const waitingBytesMax = 4 * 1024 * 1024
const retryMs = 100

/**
 * Writes lines to a pipe or file, without ever waiting for its reader. If the reader is slow, up to `waitingBytesMax` bytes are kept, and further
 * lines are dropped. If the reader is gone, all lines are dropped. (When flushed, pino's own destination would repeat a failed write forever.)
 */
const toDescriptor = (fd: number): DestinationStream => {
  let waiting: Buffer[] = []
  let waitingBytes = 0
  const write = (): void => {
    for (let [next] = waiting; next !== undefined; [next] = waiting)
      try {
        const written = writeSync(fd, next)
        waitingBytes -= written
        if (written < next.length) waiting[0] = next.subarray(written)
        else waiting.shift()
      } catch (error) {
        if (codeOf(error) === 'EAGAIN') return void setTimeout(write, retryMs).unref()
        waiting = []
        waitingBytes = 0
      }
  }
  return {
    write: (line) => {
      const bytes = Buffer.from(line)
      if (waitingBytes + bytes.length > waitingBytesMax) return
      waitingBytes += bytes.length
      if (waiting.push(bytes) === 1) write()
    },
  }
}

const onTerminal = (): DestinationStream => {
  const pretty = prettyLine({ colours: process.stderr.hasColors() })
  return { write: (line) => void process.stderr.write(pretty(line)) }
}

/** Matches characters in JSON text that would move the terminal's cursor, except for line breaks, which stack traces need. */
const movesCursor = /\\(?:u00[01][0-9a-f]|[bfr]|\\)|[\u007f-\u009f]/gi

/** Converts a line of JSON to readable lines. Untrusted text in the line cannot control the terminal. */
export const prettyLine = ({ colours }: { readonly colours: boolean }): ((line: string) => string) => {
  const pretty = prettyFactory({
    colorize: colours,
    ignore: 'pid,hostname',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
  })
  return (line) => pretty(line.replace(movesCursor, (found) => (found === '\\\\' ? found : '\u{fffd}')))
}

/**
 * The members of errors from pg that must not be logged: the client, which contains the key for cancelling its queries, and texts that quote
 * rows and can therefore contain personal data.
 */
const unsaid = new Set(['client', 'detail', 'where', 'internalQuery'])
/** Errors that are nested more deeply are not logged. */
const depthMax = 4

export const loggedError = (error: unknown, depth = 0): unknown => {
  if (!(error instanceof Error)) return depth > depthMax ? 'more' : plainError(error)
  if (depth > depthMax) return String(error)
  const within = new Map<string, unknown>(Object.entries(error))
  const shown = Object.entries(pino.stdSerializers.err(error)).filter(([name]) => !unsaid.has(name))
  return Object.fromEntries(
    shown.map(([name, value]) => {
      if (name === 'aggregateErrors' && error instanceof AggregateError)
        return [name, error.errors.map((one) => loggedError(one, depth + 1))]
      return [name, within.get(name) instanceof Error ? loggedError(within.get(name), depth + 1) : value]
    }),
  )
}

/** Describes a value that a library passes instead of an error, such as the copies of pg-boss. Keeps only members that describe the error. */
function plainError(thrown: unknown): unknown {
  if (typeof thrown !== 'object' || thrown === null) return String(thrown)
  const said = Object.entries(thrown).filter(
    ([name, value]) => toldMembers.has(name) && ['string', 'number', 'boolean'].includes(typeof value),
  )
  return said.length > 0
    ? Object.fromEntries(said)
    : `an object with the members ${Object.keys(thrown).join(', ')}`
}

const toldMembers = new Set(['type', 'name', 'message', 'code', 'stack', 'queue'])
