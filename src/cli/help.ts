import type { Command } from './command.ts'

/** What is printed for help, and for a command that does not exist. */

const invocation = 'npm run -s cli --'

export const overview = (shown: readonly Command[]): string => {
  const width = Math.max(...shown.map(({ name }) => name.length))
  return [
    `Usage: ${invocation} <noun> <verb> [values] [--json]`,
    '',
    ...shown.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`),
    '',
    `${invocation} <noun> <verb> --help shows a command's parameters. --json prints one JSON document.`,
    'OPERATOR_TOKEN proves who you are; --as NAME, or OPERATOR, only labels what you do.',
    'Exit codes: 0 done, 1 failed, 2 wrong usage.',
  ].join('\n')
}

/** `verbs`: the commands of the noun that was typed. */
export const notFound = ([noun = '', verb]: readonly string[], verbs: readonly Command[]): string => {
  const names = verbs.map(({ name }) => name.slice(noun.length + 1)).join(', ')
  if (verbs.length === 0) return `There is no command "${verb === undefined ? noun : `${noun} ${verb}`}".`
  return verb === undefined || verb.startsWith('-')
    ? `"${noun}" needs a verb: ${names}.`
    : `There is no command "${noun} ${verb}"; the verbs of "${noun}" are ${names}.`
}

export const usageOf = ({ name, summary, parameters }: Command): string => {
  const positional = parameters.filter(({ kind }) => kind !== 'flag')
  const width = Math.max(0, ...parameters.map((parameter) => parameter.name.length))
  return [
    `Usage: ${invocation} ${name}${positional.map((one) => (one.required ? ` <${one.name}>` : ` [${one.name}]`)).join('')} [--json]`,
    '',
    `  ${summary}`,
    ...(parameters.length === 0 ? [] : ['']),
    ...parameters.map(
      (one) => `  --${one.name.padEnd(width)}  ${one.help}${one.required ? ' (required)' : ''}`,
    ),
  ].join('\n')
}
