import type { AnyDeclared, Shell } from '../administration/declare.ts'
import { allCommands } from '../administration/nouns.ts'
import { optionsOf } from './parse.ts'

/** The command that replaces `npm run -s cli --`. The script defines this command unless it exists. */
const word = 'enl'

/** Returns the lines of a script that completes commands in a shell. Completion sends no request to the service. */
export const completionScript = async (shell: Shell): Promise<string[]> =>
  ({ bash, zsh, fish })[shell](treeOf(await allCommands()))

type Tree = {
  readonly nouns: readonly string[]
  readonly verbs: readonly (readonly [string, readonly string[]])[]
  readonly commands: readonly AnyDeclared[]
}

const treeOf = (commands: readonly AnyDeclared[]): Tree => {
  const verbs = new Map<string, string[]>()
  for (const { name } of commands) {
    const [noun = '', verb] = name.split(' ')
    verbs.set(noun, [...(verbs.get(noun) ?? []), ...(verb === undefined ? [] : [verb])])
  }
  return { nouns: [...verbs.keys()], verbs: [...verbs].filter(([, of]) => of.length > 0), commands }
}

const dashed = (command: AnyDeclared): string[] => optionsOf(command).map((name) => `--${name}`)

/** Quotes a string for a POSIX shell. The quoting also works in fish, because our paths contain no backslash. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const packageFolder = new URL('../..', import.meta.url).pathname.replace(/\/$/, '')
const called = `npm run -s --prefix ${quoted(decodeURIComponent(packageFolder))} cli --`

/** A `case` that sets `offered` to the possible words at this position. */
const cases = ({ nouns, verbs, commands }: Tree): string[] => [
  `  case "$place" in`,
  `    1) offered='${nouns.join(' ')} --help --version' ;;`,
  `    2) case "$noun" in`,
  ...verbs.map(([noun, of]) => `      ${noun}) offered='${of.join(' ')} --help' ;;`),
  `    esac ;;`,
  `  esac`,
  `  if [ "$place" -ge 2 ] && [ -z "$offered" ]; then`,
  `    case "$noun $verb" in`,
  ...commands.map((command) =>
    command.name.includes(' ')
      ? `      '${command.name}') offered='${dashed(command).join(' ')}' ;;`
      : `      '${command.name} '*) offered='${dashed(command).join(' ')}' ;;`,
  ),
  `    esac`,
  `  fi`,
]

const definition = `type ${word} >/dev/null 2>&1 || ${word}() { ${called} "$@"; }`

const bash = (tree: Tree): string[] => [
  definition,
  `_${word}_complete() {`,
  `  local current="\${COMP_WORDS[COMP_CWORD]}" noun="\${COMP_WORDS[1]}" verb="\${COMP_WORDS[2]}" place="$COMP_CWORD" offered=''`,
  ...cases(tree),
  `  # File names are offered for values.`,
  `  case "$place $current" in [3-9]*' '[!-]*) offered='' ;; esac`,
  `  COMPREPLY=($(compgen -W "$offered" -- "$current"))`,
  `}`,
  `complete -o default -F _${word}_complete ${word}`,
]

const zsh = (tree: Tree): string[] => [
  definition,
  `_${word}_complete() {`,
  `  local noun="$words[2]" verb="$words[3]" place=$((CURRENT - 1)) offered=''`,
  ...cases(tree),
  `  compadd -- \${=offered}`,
  `  [ "$place" -lt 3 ] || _files`,
  `}`,
  `(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }`,
  `compdef _${word}_complete ${word}`,
]

const fish = ({ nouns, verbs, commands }: Tree): string[] => [
  `type -q ${word}; or function ${word}; ${called} $argv; end`,
  `complete -c ${word} -n __fish_use_subcommand -f -a '${nouns.join(' ')}'`,
  `complete -c ${word} -n __fish_use_subcommand -l version`,
  ...verbs.map(
    ([noun, of]) =>
      `complete -c ${word} -n '__fish_seen_subcommand_from ${noun}; and not __fish_seen_subcommand_from ${of.join(' ')}' -f -a '${of.join(' ')}'`,
  ),
  ...commands.flatMap((command) => {
    const typed = command.name
      .split(' ')
      .map((one) => `__fish_seen_subcommand_from ${one}`)
      .join('; and ')
    return dashed(command).map((option) => `complete -c ${word} -n '${typed}' -l ${option.slice(2)}`)
  }),
]
