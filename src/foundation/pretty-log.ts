import { prettyFactory } from 'pino-pretty'

/** What a person reads of the log on a terminal, where programs get JSON lines. */

/** Characters of a JSON text that would move the reader's cursor; a line break within a stack stays. */
const movesCursor = /\\(?:u00[01][0-9a-f]|[bfr]|\\)|[\u007f-\u009f]/gi

/** A line of JSON as lines for people. Text of others in it cannot speak to the terminal. */
export const prettyLine = ({ colours }: { readonly colours: boolean }): ((line: string) => string) => {
  const pretty = prettyFactory({
    colorize: colours,
    ignore: 'pid,hostname',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
  })
  return (line) => pretty(line.replace(movesCursor, (found) => (found === '\\\\' ? found : '\u{fffd}')))
}
