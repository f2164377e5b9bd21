/**
 * Finds the ISO 3166-2 code of a region by its name, for files that contain only names.
 *
 * A wrong code is worse than no code, so a name that fits two regions of one level gets null. The most reliable lists come first: our
 * aliases, CLDR's English names, the ISO names (npm iso-3166), and then all these names without words such as "Province". The top level of a
 * country comes before lower levels, so that "Murcia" is the autonomous community and not the province in it.
 */
import { iso31662 } from 'iso-3166'
import { cldrRegionNames } from './region-codes.ts'

/** TW, HK and MO are countries here, although ISO 3166-2 also lists them as regions of CN. */
const withoutCodes = new Set(['TW', 'HK', 'MO'])

/** Former counties of Denmark and Luxembourg that iso-3166 4.4.0 still lists. */
const withdrawn = /^(DK-0|DK-1|LU-[DGL]$)/

/**
 * Names that are missing or wrong in the lists, as `code=name` joined by `|`, in `plain` form, with or without kind words. They were found by
 * a comparison of every region name in the bundled IPv4 file with its cities: "Buenos Aires" in that file is the province (in CLDR, the
 * city), "Plzeň Region" is not the district of that name, and "Kyiv Oblast" is not Kyiv. Norway's codes of 2024 and the English names of
 * Iran, for which CLDR has withdrawn codes, are those of ISO.
 */
const aliases: Readonly<Record<string, string>> = {
  AR: 'B=buenos aires|C=buenos aires f d|C=autonomous city of buenos aires',
  AU: 'ACT=act',
  BA: 'BIH=federation of b and h|SRP=srpska',
  BG: '22=sofia grad|22=sofia city|22=sofia capital|23=sofia',
  BH: '13=manama',
  BY: 'HM=minsk city|MI=minsk|HO=homyel voblasc|HO=gomel|MA=mogilev|HR=grodno|HR=grodnenskaya',
  CH: 'BS=basel city|SG=saint gall|GR=grisons',
  CL: 'LI=ohiggins',
  CO: 'DC=bogota d c|DC=bogota',
  CZ:
    '10=hlavni mesto praha|20=central bohemia|20=central bohemian|31=south bohemia|31=south bohemian|32=plzen|' +
    '41=karlovy vary|41=carlsbad|42=usti nad labem|51=liberec|52=hradec kralove|53=pardubice|64=south moravia|' +
    '64=south moravian|71=olomouc|72=zlin|80=moravian silesian',
  DE: 'HH=free and hanseatic city of hamburg|HB=free hanseatic city of bremen',
  DK: '81=north denmark|82=central jutland|83=south denmark',
  DO: '01=nacional',
  EE: '39=hiiumaa|79=tartu',
  EG: 'SHR=sharqia|BNS=beni suweif',
  ES: 'CL=castille and leon|CM=castille la mancha|NC=navarre|VC=valencia',
  FI: '03=south ostrobothnia|04=south savo|11=tampere|14=north ostrobothnia|15=north savo',
  FR: 'ARA=rhone alpes|BFC=bourgogne|NAQ=new aquitaine|NOR=normandy|PAC=provence|20R=corsica',
  HR: '21=city of zagreb|01=county of zagreb|16=vukovar srijem',
  HU: 'VE=veszprem',
  IQ: 'AN=anbar|DA=duhok',
  IR:
    '03=east azerbaijan|04=west azerbaijan|09=razavi khorasan|10=isfahan|11=sistan and baluchestan|12=kurdistan|' +
    '14=chaharmahal and bakhtiari|17=kohgiluyeh and boyer ahmad|28=north khorasan|29=south khorasan',
  IS: '1=capital region|3=west|5=northwest|6=northeast|7=east|8=south',
  IT: '57=the marches|77=basilicate',
  KR: '50=sejong si',
  KZ:
    '10=abai|15=aktobe|15=aktyubinskaya|19=almaty region|23=atyrau oblisi|27=west kazakhstan|33=jetisu|33=zhetysu|' +
    '35=karaganda|39=kostanay|43=kyzylorda|47=mangystau|59=north kazakhstan|63=east kazakhstan|71=nur sultan',
  LA: 'VT=vientiane prefecture|VI=vientiane',
  LB: 'AS=north lebanon|BI=bekaa',
  MA: '02=oriental|07=marrakesh safi',
  MM: '06=rangoon',
  MX: 'CMX=mexico city',
  MZ: 'MPM=maputo city',
  NG: 'FC=fct',
  NO: '31=ostfold|32=akershus|33=buskerud|39=vestfold|40=telemark|55=troms|56=finnmark',
  NP: 'P4=gandaki pradesh|P6=karnali pradesh|P7=sudurpashchim pradesh',
  PE: 'LMA=lima province|CAL=callao|CUS=cuzco',
  PL: '20=podlasie',
  QA: 'DA=baladiyat ad dawhah|RA=baladiyat ar rayyan',
  RS: '00=belgrade',
  RU:
    'ALT=altay kray|ALT=altay territory|CE=chechnya|CU=chuvashia|KB=kabardino balkariya|KC=karachayevo cherkesiya|' +
    'KEM=kuzbass|KHM=khanty mansia|MOS=moscow oblast|MOS=moscow region|ORL=orel|PRI=primorye|' +
    'PRI=primorskiy maritime|SE=north ossetia|UD=udmurtiya|VOR=voronezj|YAR=jaroslavl|ZAB=transbaikal|' +
    'ZAB=zabaykalskiy transbaikal',
  SA: '02=mecca|03=medina|12=al jouf',
  TH: '31=buriram|39=nong bua lamphu',
  UA:
    '05=vinnytsia|09=luhansk|12=dnipropetrovsk|14=donetsk|18=zhytomyr|23=zaporizhzhia|26=ivano frankivsk|' +
    '30=kyiv city|32=kyiv oblast|32=kyiv region|35=kirovohrad|46=lviv|48=mykolaiv|51=odesa|51=odessa|53=poltava|56=rivne|' +
    '59=sumy|61=ternopil|63=kharkiv|65=kherson|68=khmelnytskyi|71=cherkasy|74=chernihiv|77=chernivtsi',
  UZ: 'TO=tashkent region|TO=toshkent|TK=toshkent shahri',
  VN: 'SG=ho chi minh city hcmc',
  YE: 'AD=aden|SA=amanat alasimah',
  ZA: 'FS=orange free state',
}

/** Words for the kind of a region. "North" and "New" are not included, because they are part of the name. */
const kindWords = new Set(
  (
    'administrative area autonomous canton capital city community council county department departamento ' +
    'district division estado federal governorate island islands judet krai kray local maakond metropolitan ' +
    'municipality oblast oblys oblysy of okrug parish prefecture provincia province region republic special ' +
    'state territory the urban voivodeship zone de do la'
  ).split(' '),
)

/** Letters without a combining mark that NFD could separate. */
const plainLetters: Readonly<Record<string, string>> = {
  æ: 'ae',
  ø: 'o',
  ł: 'l',
  đ: 'd',
  ð: 'd',
  þ: 'th',
  ß: 'ss',
  ı: 'i',
  ə: 'a',
  '&': ' and ',
}

/** Codes by whole or stripped name; null for a name that fits two codes. */
type NameList = { stripped: boolean; codes: Map<string, string | null> }
type Named = { code: string; name: string }

const isoByCountry = Map.groupBy(
  iso31662.filter(({ code }) => !withdrawn.test(code)),
  ({ code }) => code.slice(0, 2),
)

/** The lists of each country, the most reliable first. They are built on first use and kept, because there are at most 250. */
const listsByCountry = new Map<string, NameList[]>()

/**
 * Codes by country and name. They are cached, because a search costs as much as the rest of a lookup. A location file names a few thousand
 * regions.
 */
const knownCodes = new Map<string, string | null>()
const knownCodesMax = 20_000

/**
 * Returns the part of the ISO 3166-2 code after the hyphen; null if the country or the name is unknown, or the name fits several
 * regions. `countryCode` is ISO 3166-1 alpha-2.
 */
export const regionCode = (countryCode: string, name: string): string | null => {
  const key = countryCode + name
  let code = knownCodes.get(key)
  if (code === undefined) {
    code = findRegionCode(countryCode, name)
    if (knownCodes.size >= knownCodesMax) knownCodes.clear()
    knownCodes.set(key, code)
  }
  return code
}

const findRegionCode = (countryCode: string, name: string): string | null => {
  const whole = plain(name)
  const stripped = withoutKind(whole)
  for (const list of listsByCountry.get(countryCode) ?? buildLists(countryCode)) {
    const code = list.codes.get(list.stripped ? stripped : whole)
    if (code !== undefined) return code
  }
  return null
}

const buildLists = (countryCode: string): NameList[] => {
  const iso = isoByCountry.get(countryCode)
  if (iso === undefined || withoutCodes.has(countryCode)) return []
  const own = parseNames(aliases[countryCode])
  const english = new Map(parseNames(cldrRegionNames[countryCode]).map(({ code, name }) => [code, name]))
  const top = iso.filter((region) => region.parent === countryCode)
  const lower = iso.filter((region) => region.parent !== countryCode)
  const cldrNames = (regions: typeof iso) =>
    regions.map(({ code }) => ({ code: code.slice(3), name: plain(english.get(code.slice(3)) ?? '') }))
  // ISO has names such as "Madrid, Comunidad de" and "Diekirch (de)", which end with a kind of region or a language.
  const isoNames = (regions: typeof iso) =>
    regions.map(({ code, name }) => ({ code: code.slice(3), name: plain(name.split(/[,(/]/, 1)[0] ?? '') }))
  const lists = [
    wholeNames(own),
    wholeNames(cldrNames(top)),
    wholeNames(isoNames(top)),
    strippedNames(own),
    strippedNames([...cldrNames(top), ...isoNames(top)]),
    // Names of lower levels are not stripped; otherwise "Plzeň Region" would find a district.
    wholeNames(cldrNames(lower)),
    wholeNames(isoNames(lower)),
  ]
  listsByCountry.set(countryCode, lists)
  return lists
}

const parseNames = (table: string | undefined): Named[] => {
  if (table === undefined) return []
  return table.split('|').map((entry) => {
    const at = entry.indexOf('=')
    return { code: entry.slice(0, at), name: entry.slice(at + 1) }
  })
}

const wholeNames = (entries: Named[], stripped = false): NameList => {
  const codes: NameList['codes'] = new Map()
  for (const { code, name } of entries) {
    if (name === '') continue
    const known = codes.get(name)
    codes.set(name, known === undefined || known === code ? code : null)
  }
  return { stripped, codes }
}

const strippedNames = (entries: Named[]): NameList => {
  return wholeNames(
    entries.map(({ code, name }) => ({ code, name: withoutKind(name) })),
    true,
  )
}

/** Lower case without marks or punctuation, and with "st" replaced by "saint": "Ile-de-France" equals "Île-de-France". */
const plain = (name: string): string => {
  return name
    .toLowerCase()
    .replace(/[æøłđðþßıə&]/g, (letter) => plainLetters[letter] ?? letter)
    .normalize('NFD')
    .replace(/[\p{M}'’ʻ‘`´ʼ]/gu, '')
    .replace(/[^\p{L}\p{Nd}]+/gu, ' ')
    .trim()
    .replace(/\bst\b/g, 'saint')
}

const withoutKind = (plainName: string): string => {
  return plainName
    .split(' ')
    .filter((word) => !kindWords.has(word))
    .join(' ')
}
