import type { AnyDeclared } from '../administration/declare.ts'
import { commandsOfNoun, nouns } from '../administration/nouns.ts'
import { nearest } from '../foundation/nearest.ts'
import { invocation, listText } from './overview.ts'
import { parametersOf } from './parse.ts'

/** Returns the help for one noun, with the summaries up to their first semicolon. The help of each verb has the rest. */
export const verbsText = (shown: readonly AnyDeclared[]): string =>
  listText(shown.map(({ name, summary }) => [name, summary.replace(/;.*/, '')]))

/** Returns a suggestion for an unknown noun or verb; null if no word is similar. */
export const closeWords = async ([noun = '', verb = '']: readonly string[]): Promise<string | null> => {
  const names = nouns.map(({ name }) => name)
  const meant = names.includes(noun) ? noun : nearest(noun, names)
  if (meant === null) return null
  const verbs = (await commandsOfNoun(meant)).flatMap(({ name }) => name.split(' ').slice(1))
  const close = verbs.includes(verb) ? verb : nearest(verb, verbs)
  if (meant === noun && close === null) return null
  return `Did you mean "${[meant, ...(close === null ? [] : [close])].join(' ')}"?`
}

/** `verbs` are the commands of the typed noun. */
export const notFound = ([noun = '', verb]: readonly string[], verbs: readonly AnyDeclared[]): string => {
  const names = verbs.map(({ name }) => name.slice(noun.length + 1)).join(', ')
  if (verbs.length === 0) return `There is no command "${verb === undefined ? noun : `${noun} ${verb}`}".`
  return verb === undefined || verb.startsWith('-')
    ? `"${noun}" needs a verb: ${names}.`
    : `There is no command "${noun} ${verb}"; the verbs of "${noun}" are ${names}.`
}

const asksText = {
  never: 'does not ask',
  'on a terminal': 'shows the changes and asks on a terminal',
  always: 'shows the changes and asks on a terminal; needs --yes without a terminal',
} as const

export const usageOf = (declared: AnyDeclared): string => {
  const { name, summary, changes } = declared
  const parameters = parametersOf(declared)
  const positional = parameters.filter(({ flag }) => flag !== true)
  const options = [
    ...parameters,
    ...(changes === 'nothing'
      ? []
      : [
          { name: 'dry-run', help: 'show the planned changes and write nothing', required: undefined },
          { name: 'yes', help: 'make the change without asking', required: undefined },
        ]),
  ]
  const width = Math.max(0, ...options.map((option) => option.name.length))
  return [
    `Usage: ${invocation} ${name}${positional.map((one) => (one.required ? ` <${one.name}>` : ` [${one.name}]`)).join('')} [--json]`,
    '',
    `  ${summary}`,
    `  Changes ${changes === 'nothing' ? 'nothing' : `${changes.of}; ${asksText[changes.asks]}`}.`,
    ...(options.length === 0 ? [] : ['']),
    ...options.map((one) => `  --${one.name.padEnd(width)}  ${one.help}${one.required ? ' (required)' : ''}`),
  ].join('\n')
}
