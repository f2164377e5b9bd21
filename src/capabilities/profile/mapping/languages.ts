import Iso6391 from 'iso-639-1'

/**
 * Finds the code of a language as people and pages write it: ISO 639-1 if the language has one, otherwise ISO 639-3. Accepts
 * codes, including regional (pt-BR) and bibliographic ones (ger), English names and native names.
 */

const nameCharactersMax = 100

/** Names that are missing from both lists. */
const otherNames: Readonly<Record<string, string>> = {
  'bahasa indonesia': 'id',
  'bahasa melayu': 'ms',
  'bahasa malaysia': 'ms',
  castilian: 'es',
  castellano: 'es',
  farsi: 'fa',
  flemish: 'nl',
  mandarin: 'zh',
  'mandarin chinese': 'zh',
  'simplified chinese': 'zh',
  'traditional chinese': 'zh',
  'brazilian portuguese': 'pt',
  'american english': 'en',
  'british english': 'en',
  'latin american spanish': 'es',
  moldovan: 'ro',
  'norwegian bokmal': 'nb',
  slovene: 'sl',
  'swiss german': 'gsw',
  tagalog: 'tl',
  filipino: 'fil',
  'haitian creole': 'ht',
}

/**
 * The languages without an ISO 639-1 code that have an English name in Node.js (CLDR). A test of all 17,576 three-letter codes would delay
 * the first caller by almost a second.
 */
const threeLetterCodes = (
  'ace ach ada ady aeb afh agq ain akk akz ale aln alt ang ann anp arc arn aro arp arq ars arw ary arz ' +
  'asa ase ast atj avk awa bal ban bar bas bax bbc bbj bej bem bew bez bfd bfq bgc bgn bho bik bin bjn ' +
  'bkm bla blo blt bpy bqi bra brh brx bss bua bug bum byn byv cad car cay cch ccp ceb cgg chb chg chk ' +
  'chm chn cho chp chr chy cic ckb clc cop cps crg crh crj crk crl crm crr crs csb csw dak dar dav del ' +
  'den dgr din dje doi dsb dtp dua dum dyo dyu dzg ebu efi egl egy eka elx enm esu ewo ext fan fil fit ' +
  'fon frc frm fro frp frr frs fur gaa gag gan gay gba gbz gez gil glk gmh goh gon gor got grb grc gsw ' +
  'guc gur guz gwi hai hak haw hax hif hil hit hmn hnj hsb hsn hup hur iba ibb ikt ilo inh izh jam jbo ' +
  'jgo jmc jpr jrb jut kaa kab kac kaj kam kaw kbd kbl kcg kde kea kek ken kfo kgp kha kho khq khw kiu ' +
  'kkj kln kmb koi kok kos kpe krc kri krj krl kru ksb ksf ksh kum kut kwk kxv lad lag lah lam lez lfn ' +
  'lij lil liv lkt lmo lol lou loz lrc lsm ltg lua lui lun luo lus luy lzh lzz mad maf mag mai mak man ' +
  'mas mde mdf mdr men mer mfe mga mgh mgo mic min mnc mni moe moh mos mrj mua mus mwl mwr mwv mye myv ' +
  'mzn nan nap naq nds new nia niu njo nmg nnh nog non nov nqo nso nus nwc nym nyn nyo nzi ojb ojc ojs ' +
  'ojw oka osa ota pag pal pam pap pau pcd pcm pdc pdt peo pfl phn pis pms pnt pon pqm prg pro quc qug ' +
  'raj rap rar rgn rhg rif rof rom rtm rue rug rup rwk sad sah sam saq sas sat saz sba sbp scn sco sdc ' +
  'sdh see seh sei sel ses sga sgs shi shn shu sid slh sli sly sma smj smn sms snk sog srn srr ssy stq ' +
  'str suk sus sux swb syc syr szl tce tcy tem teo ter tet tgx tht tig tiv tkl tkr tlh tli tly tmh tog ' +
  'tok tpi tru trv trw tsd tsi ttm ttt tum tvl twq tyv tzm udm uga umb vai vec vep vls vmf vmw vot vro ' +
  'vun wae wal war was wbp wuu xal xmf xnr xog yao yap yav ybb yrl yue zap zbl zea zen zgh zun zza'
).split(' ')

const englishNames = new Intl.DisplayNames(['en'], { type: 'language', fallback: 'none' })

/** Null if the text is not a known language. */
export const languageCode = (text: string): string | null => {
  if (text.length > nameCharactersMax) return null
  const name = plain(text)
  return byName().get(name) ?? codeOf(name) ?? byName().get(unqualified(name)) ?? null
}

const plain = (text: string): string => text.normalize('NFC').toLowerCase().replaceAll(/\s+/g, ' ').trim()

/** Returns only the name in `spanish (latin america)`, `english - native` or `arabic, levantine`. */
const unqualified = (name: string): string => (name.split(/[(,;/–—]|\s-\s/, 1)[0] ?? '').trim()

/** Reads a two- or three-letter code, optionally followed by regions or scripts. */
const codeOf = (name: string): string | null => {
  const base = /^([a-z]{2,3})(?:[-_][a-z0-9]{2,8}){0,3}$/.exec(name)?.[1]
  if (base === undefined) return null
  if (Iso6391.validate(base)) return base
  // Replaces withdrawn and bibliographic codes: iw becomes he, and ger and deu become de.
  const code = (Intl.getCanonicalLocales(base)[0] ?? base).split('-', 1)[0] ?? base
  if (Iso6391.validate(code)) return code
  return code.length === 3 && !notALanguage.has(code) && englishNames.of(code) !== undefined ? code : null
}

/** ISO 639 codes for "no language" and "unknown language". */
const notALanguage = new Set(['mis', 'mul', 'und', 'zxx'])

let names: ReadonlyMap<string, string> | null = null

/** Built on first use, because most processes never need a language. */
const byName = (): ReadonlyMap<string, string> => {
  if (names !== null) return names
  const found = new Map<string, string>()
  for (const code of threeLetterCodes) {
    const name = englishNames.of(code)
    if (name !== undefined && !notALanguage.has(code)) found.set(plain(name), code)
  }
  for (const code of Iso6391.getAllCodes()) {
    for (const name of [Iso6391.getNativeName(code), Iso6391.getName(code), englishNames.of(code)])
      if (name !== undefined && name !== '') found.set(plain(name), code)
  }
  for (const [name, code] of Object.entries(otherNames)) found.set(name, code)
  names = found
  return found
}
