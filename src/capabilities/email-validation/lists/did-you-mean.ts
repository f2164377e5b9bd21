import { parse } from 'tldts'
import type { ListedDomains } from './listed-domains.ts'
import { firstOfParents } from './parents.ts'
import {
  bigByTail,
  byLettersOnly,
  byName,
  byUndoubled,
  fuzzyByLetter,
  type ProviderName,
  undoubled,
} from './provider-names.ts'

/**
 * Corrects mistyped provider domains: `gmial.com`, `hotmail.con`, `yahoocom`.
 *
 * A wrong suggestion does more harm than a missing one, because people then distrust a correct address. So the name must be similar to a
 * provider's name, and the ending must be the provider's ending or a typo of it. In short names, only the ending is corrected, because they
 * differ from many real companies' names by only one letter.
 */

/** The maximum length of a domain that is compared with providers. */
const domainLengthMax = 30
/** Up to two typos are corrected in a provider's name of at least this length. In a shorter name, two typos result in a different word. */
const twoSlipsLengthMin = 7
const endingSlipsMax = 2
/** In a provider's name of at most this length, a substituted letter must be next to the right letter on the keyboard. */
const substitutionLengthMax = 6
/** Existing endings that are almost always typos after a provider's name. */
const slipsOfEndings: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['com', new Set(['c', 'co', 'cm', 'om', 'cam', 'comm', 'con', 'vom', 'xom', 'cim'])],
  ['net', new Set(['ne', 'et'])],
  ['me', new Set(['ne'])],
])
/** Pairs of keys that touch on a QWERTY keyboard, in both orders. */
const neighbourKeys: ReadonlySet<string> = new Set(
  ['1234567890', 'qwertyuiop', 'asdfghjkl', 'zxcvbnm'].flatMap((row, rowAt, rows) =>
    [...row].flatMap((key, at) => {
      const below = rows[rowAt + 1] ?? ''
      return [row[at + 1], below[at - 1], below[at]]
        .filter((other) => other !== undefined)
        .flatMap((other) => [`${key}${other}`, `${other}${key}`])
    }),
  ),
)

/** Pairs of letters that look alike: the typed letter, then the intended one. */
const lookAlikes: ReadonlySet<string> = new Set(['il', '1l', '1i', '0o'])

/** The label before a country's ending, as in `con.br`, `oc.in` or `co.br`. */
const beforeCountry = ['com', 'co']

/**
 * Returns the provider's domain of which `asciiDomain` (lower case) is a typo; null if there is none, or if the domain is listed as a domain
 * that receives mail. Disposable look-alikes, such as squatted typos, get a suggestion.
 */
export const suggestionFor = (asciiDomain: string, kindOf: ListedDomains['kindOf']): string | null => {
  const kind = firstOfParents(asciiDomain, kindOf)
  return kind !== undefined && kind !== 'disposable' ? null : correctedDomain(asciiDomain)
}

/** Like `suggestionFor`, for a domain that is not on a list of real domains. */
export const correctedDomain = (domain: string): string | null => {
  if (domain.length > domainLengthMax || domain.startsWith('[')) return null
  const corrected = nearestProvider(domain)
  return corrected === domain ? null : corrected
}

const nearestProvider = (domain: string): string | null => {
  const dot = domain.indexOf('.')
  const name = dot === -1 ? domain : domain.slice(0, dot)
  const ending = dot === -1 ? '' : domain.slice(dot + 1)
  const exact = byName.get(name) ?? withoutMail(name)
  if (exact !== undefined && (ending !== '' || exact.fuzzy || exact.big)) {
    const corrected =
      correctedEnding(ending, exact) ?? (exact.sole && oneLabel(ending) ? exact.endings[0] : null)
    if (corrected !== null) return `${exact.name}.${corrected}`
  }
  const joined = byLettersOnly.get(dot === -1 ? domain : domain.replaceAll('.', ''))
  if (joined !== undefined) return joined
  if (exact !== undefined) return null
  return correctedDoubling(name, ending) ?? correctedStart(name, ending) ?? correctedName(name, ending)
}

/** Corrects a missing or superfluous doubled letter, even in short names. */
const correctedDoubling = (name: string, ending: string): string | null => {
  const provider = byUndoubled.get(undoubled(name))
  return provider?.endings.includes(ending) === true ? `${provider.name}.${ending}` : null
}

/** Finds the provider for a name such as `yahoomail`, with which people refer to a provider's mail service. */
const withoutMail = (name: string): ProviderName | undefined => {
  const provider = name.endsWith('mail') ? byName.get(name.slice(0, -4)) : undefined
  return provider?.big === true && provider.fuzzy ? provider : undefined
}

/** Corrects the first letter of a big provider's name if it is missing or on an adjacent key: `ahoo.com`, `tahoo.com`. */
const correctedStart = (name: string, ending: string): string | null => {
  const missing = bigByTail.get(name)
  const other = bigByTail.get(name.slice(1))
  const provider = missing ?? (isNeighbour(name, other?.name) ? other : undefined)
  const corrected = provider === undefined ? null : correctedEnding(ending, provider)
  return corrected === null ? null : `${provider?.name}.${corrected}`
}

const isNeighbour = (name: string, provider: string | undefined): boolean =>
  neighbourKeys.has(`${provider?.[0]}${name[0]}`)

const correctedName = (name: string, ending: string): string | null => {
  let best: ProviderName | null = null
  let bestSlips = 3
  const before = byName.get(name.slice(1))
  const candidates = before?.fuzzy === true ? [before] : (fuzzyByLetter.get(name[0] ?? '') ?? [])
  for (const provider of candidates) {
    // The cheapest checks come first, because every unknown domain is checked here and few are typos.
    if (Math.abs(name.length - provider.name.length) > 2) continue
    if (!looksAlike(name, provider.name)) continue
    const slipsMax = Math.min(slipsAllowed(name, provider.name), bestSlips - 1)
    const shuffled = isShuffled(name, provider.name)
    const slips = shuffled ? 1 : slipsBetween(name, provider.name, slipsMax)
    if (slips > slipsMax || (slips === 2 && !sameEnds(name, provider.name))) continue
    if (name.length === provider.name.length && isOtherWord(name, provider.name)) continue
    if (correctedEnding(ending, provider) === null) continue
    best = provider
    bestSlips = slips
  }
  return best === null ? null : `${best.name}.${correctedEnding(ending, best) ?? ''}`
}

/** Many mail domains end in "mail" and differ only in the part before "mail". */
const slipsAllowed = (name: string, providerName: string): number =>
  providerName.length >= twoSlipsLengthMin && !name.endsWith('mail') ? 2 : 1

/**
 * People usually type the first letter correctly, so a name with a different or missing first letter is a different name (`cloud.com`,
 * `wahoo.com`, `email.com`). The first two letters can be swapped, or a letter can precede them.
 */
const looksAlike = (name: string, provider: string): boolean => {
  if (name[0] === provider[0]) return true
  if (name[0] === provider[1] && name[1] === provider[0]) return true
  return name.length === provider.length + 1 && name.endsWith(provider)
}

const isShuffled = (name: string, provider: string): boolean =>
  name[0] === provider[0] &&
  (name[1] === provider[1] || name.at(-1) === provider.at(-1)) &&
  isAnagram(name, provider)

/** Whether two names have the same letters, each the same number of times. */
const isAnagram = (left: string, right: string): boolean =>
  left.length === right.length && [...left].sort().join('') === [...right].sort().join('')

/**
 * In a short name, one different letter results in a different word (`grail`, `cycle`). Exceptions are adjacent keys, letters that look
 * alike, two vowels, and a letter that was typed twice instead of the next letter (`yahho`).
 */
const isOtherWord = (name: string, provider: string): boolean => {
  if (provider.length > substitutionLengthMax) return false
  const at = differenceOf(name, provider)
  if (name.slice(at + 1) !== provider.slice(at + 1)) return false
  const [meant, typed] = [provider[at], name[at]]
  if (typed === name[at - 1] || lookAlikes.has(`${typed}${meant}`)) return false
  const pair = `${meant}${typed}`
  return !neighbourKeys.has(pair) && !/^[aeiouy]{2}$/.test(pair)
}

const differenceOf = (left: string, right: string): number => {
  let at = 0
  while (at < left.length && left[at] === right[at]) at++
  return at
}

const sameEnds = (name: string, provider: string): boolean =>
  name[0] === provider[0] && (name.at(-1) === provider.at(-1) || name.at(-1) === provider.at(-2))

const correctedEnding = (ending: string, { endings, sole, big }: ProviderName): string | null => {
  if (endings.includes(ending)) return ending
  const country = ending.endsWith('.com') ? ending.slice(0, -4) : ''
  if (country !== '' && endings.includes(country)) return country
  const [before = '', behind] = ending.split('.', 2)
  const corrected = beforeCountry.find((meant) => endings.includes(`${meant}.${behind}`))
  if (corrected !== undefined && slipsBetween(before, corrected, 1) === 1) return `${corrected}.${behind}`
  const [first = ''] = endings
  if (ending === '' || ending === `${first}.${first}` || ending === first + first) return first
  if (slipsOfEndings.get(first)?.has(ending) === true) return sole || big || ending !== 'co' ? first : null
  if (topLevelExists(ending)) return null
  let best: string | null = null
  let bestSlips = endingSlipsMax + 1
  for (const candidate of endings) {
    const slips = slipsBetween(ending, candidate, bestSlips - 1)
    if (slips >= bestSlips || slips >= candidate.length) continue
    best = candidate
    bestSlips = slips
  }
  return best
}

const oneLabel = (ending: string): boolean => !ending.includes('.')

const topLevelExists = (ending: string): boolean =>
  parse(`a.${ending}`, { extractHostname: false, validateHostname: false }).isIcann === true

/** Damerau-Levenshtein distance (optimal string alignment) up to `max`; `max + 1` for anything larger. */
export const slipsBetween = (left: string, right: string, max: number): number => {
  if (Math.abs(left.length - right.length) > max) return max + 1
  let before: number[] = []
  let previous = Array.from({ length: right.length + 1 }, (_, at) => at)
  for (let row = 1; row <= left.length; row++) {
    const current = [row]
    let least = row
    for (let column = 1; column <= right.length; column++) {
      const same = left[row - 1] === right[column - 1]
      let cost = Math.min(
        (previous[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (previous[column - 1] ?? 0) + (same ? 0 : 1),
      )
      const exchanged =
        row > 1 && column > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1]
      if (exchanged) cost = Math.min(cost, (before[column - 2] ?? 0) + 1)
      current.push(cost)
      if (cost < least) least = cost
    }
    if (least > max) return max + 1
    before = previous
    previous = current
  }
  return Math.min(previous[right.length] ?? 0, max + 1)
}
