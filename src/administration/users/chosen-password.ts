import type { ZxcvbnFactory } from '@zxcvbn-ts/core'
import { InputFault } from '../input.ts'
import { passwordMax } from './users.ts'

/**
 * Rules for a chosen password (NIST SP 800-63B-4 §3.1.1.2): 15 characters or more, because there need not be a second factor, and
 * nothing that an attacker tries first. No kinds of characters are required: such rules make people write passwords down.
 */

const passwordMin = 15
/** zxcvbn's estimate of the necessary guesses, as a power of ten: 3 is more than 10^8. */
const scoreMin = 3
/** The time of a check grows with the length of the text. */
const checkedCharsMax = 64
const substitutionsMax = 20
const nameWordMin = 3

/** Some megabytes of common passwords, which take a moment to read: only loaded when someone chooses a password. */
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

/** The rest of a password without the words of names, which someone who knows the person tries first. */
const withoutNames = (password: string, names: readonly string[]): string =>
  names
    .flatMap((name) => name.toLowerCase().split(/[^\p{L}\p{N}]+/u))
    .filter((word) => word.length >= nameWordMin)
    .reduce((rest, word) => rest.replaceAll(word, ''), password.toLowerCase())

/** Throws `InputFault`. `names`: of the person and of the organization, which are not secret. */
export const checkPassword = async (
  field: string,
  password: string,
  names: readonly string[],
): Promise<string> => {
  if ([...password].length < passwordMin)
    throw new InputFault(field, `at least ${passwordMin} characters are expected`)
  if (password.length > passwordMax)
    throw new InputFault(field, `at most ${passwordMax} characters are accepted`)
  const zxcvbn = await load()
  const rest = withoutNames(password, [...names, 'enrichment ledger'])
  const scores = [password, rest].map((text) => zxcvbn.check(text.slice(0, checkedCharsMax)).score)
  if (Math.min(...scores) < scoreMin)
    throw new InputFault(
      field,
      'it is too easy to guess: it is a common password, a pattern or a name, or made of them; choose several unrelated words',
    )
  return password
}
