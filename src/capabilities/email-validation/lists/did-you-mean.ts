/**
 * Mistyped provider domains: `gmial.com`, `hotmail.con`, `yahoocom`.
 *
 * A wrong suggestion does more harm than a missing one: it questions an address that works. So a name has to be close
 * to a provider's name, the ending has to be the provider's or a slip of it, and short names, which are one letter away
 * from a dozen real companies, are only ever corrected in their ending.
 */
import { parse } from 'tldts'
import type { ListedDomains } from './listed-domains.ts'
import { firstOfParents } from './parents.ts'
import { slipsBetween } from './slips.ts'

type ProviderName = {
  readonly name: string
  /** Where the provider has mailboxes; the first is assumed when nothing says otherwise. */
  readonly endings: readonly string[]
  /** Nobody else uses this name: any unknown ending is a slip. */
  readonly sole: boolean
  /** The name itself may be corrected. */
  readonly fuzzy: boolean
  readonly letters: number
}

/** In order of popularity, which breaks ties. `!`: sole. `~`: fuzzy. */
const providerTable = [
  '!~gmail com',
  '!~hotmail com,co.uk,fr,de,it,es,be,nl,se,dk,no,gr,ch,at,ca,com.br,com.ar,com.au,com.mx,com.tr,co.jp,co.nz',
  '~yahoo com,co.uk,fr,de,it,es,ca,in,ie,co.in,co.jp,co.id,co.nz,co.za,com.br,com.ar,com.au,com.mx,com.tw,com.hk,com.ph,com.sg,com.vn,gr,se,no,dk,pl,ro',
  '~outlook com,fr,de,es,it,pt,be,at,dk,in,jp,com.br,com.au,com.ar,co.id',
  '!~icloud com',
  '!~googlemail com',
  '!~protonmail com,ch',
  '!~rocketmail com',
  '!~rediffmail com',
  '~ymail com',
  '~comcast net',
  '~verizon net',
  '~sbcglobal net',
  '~bellsouth net',
  '~btinternet com',
  '~btopenworld com',
  '~virginmedia com',
  '~ntlworld com',
  '~blueyonder co.uk',
  '~talktalk net',
  '~earthlink net',
  '~roadrunner com',
  '~optonline net',
  '~windstream net',
  '~centurylink net',
  '~frontiernet net',
  '~ameritech net',
  '~bigpond com,net.au',
  '~optusnet com.au',
  '~sympatico ca',
  '~videotron ca',
  '~t-online de',
  '~freenet de',
  '~wanadoo fr',
  '~laposte net',
  '~numericable fr',
  '~orange fr',
  '~libero it',
  '~virgilio it',
  '~fastwebnet it',
  '~tiscali it',
  '~telenet be',
  '~skynet be',
  '~hetnet nl',
  '~ziggo nl',
  '~bluewin ch',
  '~yandex ru,com',
  '~rambler ru',
  '~seznam cz',
  '~interia pl',
  '~hanmail net',
  'naver com',
  '~foxmail com',
  '~tutanota com,de',
  '~fastmail com,fm',
  '~hushmail com',
  '~mailbox org',
  '~windowslive com',
  '~zohomail com',
  '~uol com.br',
  '~bol com.br',
  '~terra com.br',
  'live com,co.uk,fr,nl,it,de,ca,be,se,dk,no,com.au,com.mx',
  'msn com',
  'aol com,co.uk,de,fr,it',
  'me com',
  'mac com',
  'mail com,ru',
  'gmx de,net,at,ch,com',
  'web de',
  'arcor de',
  'free fr',
  'sfr fr',
  'neuf fr',
  'alice it',
  'att net',
  'cox net',
  'charter net',
  'juno com',
  'sky com',
  'shaw ca',
  'rogers com',
  'telus net',
  'bell net',
  'proton me',
  'zoho com',
  'qq com',
  '163 com',
  '126 com',
  'sina com',
  'ukr net',
  'abv bg',
  'wp pl',
  'o2 pl',
  'onet pl',
  'sapo pt',
  'telia com',
]

/** No mistyped provider is longer; a longer name is somebody's own. */
const domainLengthMax = 30
/** Below this a name is only corrected in its ending. */
const fuzzyLengthMin = 5
/** From here on two slips are still closer to the provider than to anything else. */
const twoSlipsLengthMin = 7
const endingSlipsMax = 2
/** Up to here a substituted letter has to be a neighbour on the keyboard. */
const substitutionLengthMax = 6
/** Existing endings that are typed for `.com` far more often than meant, behind a name of a big provider. */
const slipsOfCom: ReadonlySet<string> = new Set(['co', 'cm', 'om', 'cam', 'comm', 'con', 'vom', 'xom', 'cim'])

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

const letterBits = (text: string): number => {
  let bits = 0
  for (let at = 0; at < text.length; at++) bits |= 1 << (text.charCodeAt(at) & 31)
  return bits
}

/** Counts pairs, then nibbles, then bytes, all at once: this runs for every name and every provider. */
const bitCount = (bits: number): number => {
  const pairs = bits - ((bits >>> 1) & 0x55555555)
  const nibbles = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333)
  return Math.imul((nibbles + (nibbles >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}

const providers: readonly ProviderName[] = providerTable.map((line) => {
  const [marked = '', endings = ''] = line.split(' ')
  const name = marked.replace(/^[!~]+/, '')
  const fuzzy = marked.includes('~') && name.length >= fuzzyLengthMin
  return { name, endings: endings.split(','), sole: marked.startsWith('!'), fuzzy, letters: letterBits(name) }
})
const byName: ReadonlyMap<string, ProviderName> = new Map(
  providers.map((provider) => [provider.name, provider]),
)
const fuzzyProviders = providers.filter(({ fuzzy }) => fuzzy)
/** Those whose first or second letter it is, in their order: what a name with this first letter can be a slip of. */
const fuzzyByLetter: ReadonlyMap<string, readonly ProviderName[]> = new Map(
  [...'abcdefghijklmnopqrstuvwxyz'].map((letter) => [
    letter,
    fuzzyProviders.filter(({ name }) => name[0] === letter || name[1] === letter),
  ]),
)
/** `gmailcom`: where a dot is missing or in the wrong place. */
const byLettersOnly: ReadonlyMap<string, string> = new Map(
  providers.flatMap(({ name, endings }) =>
    name.length + (endings[0]?.length ?? 0) < 6
      ? []
      : endings.map((ending): [string, string] => [
          `${name}${ending.replaceAll('.', '')}`,
          `${name}.${ending}`,
        ]),
  ),
)

/**
 * The provider's domain that the given one is a slip of; null where there is none, or the domain is listed as one that
 * really takes mail. Disposable look-alikes, such as squatted typos, do get a suggestion. `asciiDomain` in lower case.
 */
export const suggestionFor = (asciiDomain: string, kindOf: ListedDomains['kindOf']): string | null => {
  const kind = firstOfParents(asciiDomain, kindOf)
  return kind !== undefined && kind !== 'disposable' ? null : correctedDomain(asciiDomain)
}

/** As `suggestionFor`, for a domain already known to be on no list of real ones. */
export const correctedDomain = (domain: string): string | null => {
  if (domain.length > domainLengthMax || domain.startsWith('[')) return null
  const corrected = nearestProvider(domain)
  return corrected === domain ? null : corrected
}

const nearestProvider = (domain: string): string | null => {
  const dot = domain.indexOf('.')
  const name = dot === -1 ? domain : domain.slice(0, dot)
  const ending = dot === -1 ? '' : domain.slice(dot + 1)
  const exact = byName.get(name)
  if (exact !== undefined && ending !== '') {
    const corrected =
      correctedEnding(ending, exact) ?? (exact.sole && oneLabel(ending) ? exact.endings[0] : null)
    if (corrected !== null) return `${name}.${corrected}`
  }
  const joined = byLettersOnly.get(dot === -1 ? domain : domain.replaceAll('.', ''))
  if (joined !== undefined) return joined
  return ending === '' || exact !== undefined ? null : correctedName(name, ending)
}

const correctedName = (name: string, ending: string): string | null => {
  const letters = letterBits(name)
  let best: ProviderName | null = null
  let bestSlips = 3
  const before = byName.get(name.slice(1))
  const candidates = before?.fuzzy === true ? [before] : (fuzzyByLetter.get(name[0] ?? '') ?? [])
  for (const provider of candidates) {
    // Cheapest first: nearly every name is nobody's slip, and every unknown domain comes through here.
    if (Math.abs(name.length - provider.name.length) > 2) continue
    if (!looksAlike(name, provider.name)) continue
    const slipsMax = Math.min(slipsAllowed(name, provider.name), bestSlips - 1)
    if (bitCount(letters ^ provider.letters) > 2 * slipsMax) continue
    const slips = slipsBetween(name, provider.name, slipsMax)
    if (slips > slipsMax || (slips === 2 && !sameEnds(name, provider.name))) continue
    if (name.length === provider.name.length && isOtherWord(name, provider.name)) continue
    if (correctedEnding(ending, provider) === null) continue
    best = provider
    bestSlips = slips
  }
  return best === null ? null : `${best.name}.${correctedEnding(ending, best) ?? ''}`
}

/** Half the world's mail hosts end in "mail", so there only what stands before it tells them apart. */
const slipsAllowed = (name: string, providerName: string): number =>
  providerName.length >= twoSlipsLengthMin && !name.endsWith('mail') ? 2 : 1

/**
 * The first letter is the one people hit: another one, or none, is another name (`cloud.com`, `wahoo.com`, `email.com`).
 * The first two may be exchanged or something put before them.
 */
const looksAlike = (name: string, provider: string): boolean => {
  if (name[0] === provider[0]) return true
  if (name[0] === provider[1] && name[1] === provider[0]) return true
  return name.length === provider.length + 1 && name.endsWith(provider)
}

/**
 * In a short name one other letter makes another word (`grail`, `cycle`), unless the keys are neighbours or both letters
 * are vowels.
 */
const isOtherWord = (name: string, provider: string): boolean => {
  if (provider.length > substitutionLengthMax) return false
  const at = differenceOf(name, provider)
  if (name.slice(at + 1) !== provider.slice(at + 1)) return false
  const pair = `${provider[at]}${name[at]}`
  return !neighbourKeys.has(pair) && !/^[aeiouy]{2}$/.test(pair)
}

const differenceOf = (left: string, right: string): number => {
  let at = 0
  while (at < left.length && left[at] === right[at]) at++
  return at
}

const sameEnds = (name: string, provider: string): boolean =>
  name[0] === provider[0] && (name.at(-1) === provider.at(-1) || name.at(-1) === provider.at(-2))

/** An ending of the provider that the given one is, or is a slip of. */
const correctedEnding = (ending: string, { endings, sole }: ProviderName): string | null => {
  if (endings.includes(ending)) return ending
  const [first = ''] = endings
  if (first === 'com' && slipsOfCom.has(ending)) return sole || ending !== 'co' ? first : null
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
