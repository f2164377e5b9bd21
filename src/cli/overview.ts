import service from '../../package.json' with { type: 'json' }
import { nouns } from '../administration/nouns.ts'

export const invocation = 'npm run -s cli --'

/**
 * Returns the help for words that name no command; null if they name a command. No command is loaded, so that the help is printed quickly.
 */
export const overviewFor = (words: readonly string[]): string | null => {
  const [first] = words
  if (first === '--version' || first === '-v')
    return `${service.name} ${service.version}, Node.js ${process.versions.node}`
  const helps = words.every((word) => word === '--help' || word === '-h' || word === 'help')
  return helps ? listText(nouns.map(({ name, about }) => [name, about])) : null
}

/** Returns the help that lists nouns or commands, each with its description. */
export const listText = (entries: readonly (readonly [name: string, description: string])[]): string => {
  const width = Math.max(...entries.map(([name]) => name.length))
  return [
    `Usage: ${invocation} <noun> <verb> [values] [--json]`,
    '',
    ...entries.map(([name, description]) => `  ${name.padEnd(width)}  ${description}`),
    '',
    ...closing,
  ].join('\n')
}

/** The end of every list of commands. */
const closing = [
  `"<noun> --help" lists its verbs, "<noun> <verb> --help" the parameters of a verb. --json prints one JSON document.`,
  'Commands that change something accept --dry-run, which only shows the changes, and --yes, which makes them without asking.',
  'OPERATOR_TOKEN proves your identity. --as NAME and OPERATOR only record an unverified name.',
  'Exit codes: 0 done, 1 failed, 2 wrong usage or missing --yes, 130 interrupted. --version prints the release.',
]
