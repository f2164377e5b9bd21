/** The names of mailbox providers that people mistype, and the indexes for searching them. */

export type ProviderName = {
  readonly name: string
  /** The endings of the provider's domains; the first is the default. */
  readonly endings: readonly string[]
  /** True if no other company uses this name, so that any unknown ending is a typo. */
  readonly sole: boolean
  readonly fuzzy: boolean
  /**
   * True if the provider has so many mailboxes that a name with one different letter is more likely to be a typo than a small company's name.
   */
  readonly big: boolean
}

/** In order of popularity, which decides between equal candidates. `!` means sole, `~` fuzzy, and `^` big. */
const providerTable = [
  '!~gmail com',
  '!~^hotmail com,co.uk,fr,de,it,es,be,nl,se,dk,no,gr,ch,at,ca,com.br,com.ar,com.au,com.mx,com.tr,co.jp,co.nz,co.il',
  '~^yahoo com,co.uk,fr,de,it,es,ca,in,ie,co.in,co.jp,co.id,co.nz,co.za,com.br,com.ar,com.au,com.mx,com.tw,com.hk,com.ph,com.sg,com.vn,gr,se,no,dk,pl,ro',
  '~^outlook com,fr,de,es,it,pt,be,at,dk,in,jp,com.br,com.au,com.ar,co.id',
  '!~icloud com',
  '!~^googlemail com',
  '!~^protonmail com,ch',
  '!~^rocketmail com',
  '!~^rediffmail com',
  '~ymail com',
  '~comcast net',
  '~verizon net',
  '!~sbcglobal net',
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
  '~aliceadsl fr',
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
  '~gazeta pl',
  '~poczta fm',
  '!~hanmail net',
  'naver com',
  'daum net',
  'nate com',
  'kakao com',
  'walla co.il',
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
  'ig com.br',
  'globo com',
  '^live com,co.uk,fr,nl,it,de,ca,be,se,dk,no,com.au,com.mx',
  '^msn com',
  '^aol com,co.uk,de,fr,it',
  'me com',
  'mac com',
  'mail com,ru',
  'gmx de,net,at,ch,com',
  'web de',
  'arcor de',
  '^free fr',
  '^sfr fr',
  'neuf fr',
  'voila fr',
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
  '~proton me',
  'zoho com',
  '^qq com',
  '^163 com',
  '^126 com',
  'sina com',
  'ukr net',
  'list ru',
  'bk ru',
  'inbox ru,lv',
  'abv bg',
  'wp pl',
  'o2 pl',
  '^onet pl',
  'azet sk',
  'sapo pt',
  'telia com',
]

/** The minimum length for fuzzy matches. In a shorter name, only the ending is corrected. */
const fuzzyLengthMin = 5
/** The minimum length without doubled letters. A shorter name is not distinctive enough. */
const undoubledLengthMin = 3

const providers: readonly ProviderName[] = providerTable.map((line) => {
  const [marked = '', endings = ''] = line.split(' ')
  const name = marked.replace(/^[!~^]+/, '')
  const fuzzy = marked.includes('~') && name.length >= fuzzyLengthMin
  const [sole, big] = [marked.includes('!'), marked.includes('^')]
  return { name, endings: endings.split(','), sole, fuzzy, big }
})
export const byName: ReadonlyMap<string, ProviderName> = new Map(
  providers.map((provider) => [provider.name, provider]),
)
const fuzzyProviders = providers.filter(({ fuzzy }) => fuzzy)
/** Providers by first or second letter, in order of popularity. A name with this first letter can be a typo of these providers. */
export const fuzzyByLetter: ReadonlyMap<string, readonly ProviderName[]> = new Map(
  [...'abcdefghijklmnopqrstuvwxyz'].map((letter) => [
    letter,
    fuzzyProviders.filter(({ name }) => name[0] === letter || name[1] === letter),
  ]),
)
export const bigByTail: ReadonlyMap<string, ProviderName> = new Map(
  fuzzyProviders.filter(({ big }) => big).map((provider) => [provider.name.slice(1), provider]),
)
/** Removes doubled letters, because people often mistype them: `reddifmail`, `msnn`, `fre`. */
export const undoubled = (name: string): string => {
  // The loop is faster than the regular expression, and most domains have no doubled letters.
  for (let at = 1; at < name.length; at++)
    if (name.charCodeAt(at) === name.charCodeAt(at - 1)) return name.replace(/([a-z])\1+/g, '$1')
  return name
}
/** Providers by name, with doubled letters reduced to one. Contains only names that are long enough. */
export const byUndoubled: ReadonlyMap<string, ProviderName> = new Map(
  providers
    .filter(({ fuzzy, big, name }) => (fuzzy || big) && undoubled(name).length >= undoubledLengthMin)
    .map((provider) => [undoubled(provider.name), provider]),
)
/** Finds domains with a missing or misplaced dot, such as `gmailcom`. */
export const byLettersOnly: ReadonlyMap<string, string> = new Map(
  providers.flatMap(({ name, endings }) =>
    name.length + (endings[0]?.length ?? 0) < 6
      ? []
      : endings.map((ending): [string, string] => [
          `${name}${ending.replaceAll('.', '')}`,
          `${name}.${ending}`,
        ]),
  ),
)
