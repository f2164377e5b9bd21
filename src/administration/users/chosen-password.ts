import type { ZxcvbnFactory } from '@zxcvbn-ts/core'
import { InputFault } from '../input.ts'
import { passwordMax } from './users.ts'

/**
 * Rules for a chosen password (NIST SP 800-63B-4 §3.1.1.2): it has 15 characters or more, because the second factor is optional, and must not
 * be a password that attackers try first. Digits or special characters are not required, because such rules make people write passwords down.
 */

const passwordMin = 15
/** The lowest score from zxcvbn. A score of 3 means more than 10^8 guesses. */
const scoreMin = 3
/** Only this many characters are checked, because checking a longer text takes longer. */
const checkedCharsMax = 64
const substitutionsMax = 20
const nameWordMin = 3

/** Loaded only when someone chooses a password, because the lists of common passwords are several megabytes long. */
let loaded: Promise<ZxcvbnFactory> | undefined
const load = (): Promise<ZxcvbnFactory> => {
  loaded ??= open()
  return loaded
}

const open = async (): Promise<ZxcvbnFactory> => {
  const [{ ZxcvbnFactory: Factory }, { dictionary, adjacencyGraphs: graphs }] = await Promise.all([
    import('@zxcvbn-ts/core'),
    import('@zxcvbn-ts/language-common'),
  ])
  return new Factory({ dictionary, graphs, l33tMaxSubstitutions: substitutionsMax })
}

/** Removes the words that occur in names from a password, because attackers who know the person try those words first. */
const withoutNames = (password: string, names: readonly string[]): string =>
  names
    .flatMap((name) => name.toLowerCase().split(/[^\p{L}\p{N}]+/u))
    .filter((word) => word.length >= nameWordMin)
    .reduce((rest, word) => rest.replaceAll(word, ''), password.toLowerCase())

/**
 * Throws `InputFault` if the password breaks a rule. `names` are the names of the person and the organization, which attackers may
 * know.
 */
export const checkPassword = async (
  field: string,
  password: string,
  names: readonly string[],
): Promise<string> => {
  if ([...password].length < passwordMin)
    throw new InputFault(field, `at least ${passwordMin} characters are required`)
  if (password.length > passwordMax)
    throw new InputFault(field, `at most ${passwordMax} characters are accepted`)
  const zxcvbn = await load()
  const rest = withoutNames(password, [...names, 'enrichment ledger'])
  const scores = [password, rest].map((text) => zxcvbn.check(text.slice(0, checkedCharsMax)).score)
  if (Math.min(...scores) < scoreMin)
    throw new InputFault(
      field,
      'it is too easy to guess, because it consists of common passwords, patterns or names; choose several unrelated words',
    )
  return password
}
