/** The whole grammar of addresses is generated from the ABNF, mutated, and compared with a slow second implementation. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseEmail } from '../../src/capabilities/email-validation/syntax/parse.ts'
import { randomCases } from '../support/exhaustive.ts'

const seed = 20_261_121
const runs = { seed, numRuns: randomCases(1_000), verbose: 1 } as const

// These generators follow the ABNF of RFC 5321 §4.1.2 and §4.1.3 with RFC 6531 §3.3.

const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'
const digits = '0123456789'
const atext = `${letters}${digits}!#$%&'*+-/=?^_\`{|}~`
const printable = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index))
const nonAscii = [...'äéßñøçžąőıİÆΑβςЯжщאשبی中文日本ひらカタ한국कगதกაბ€→♥\u{1F36B}']

const from = (characters: Iterable<string>): fc.Arbitrary<string> => fc.constantFrom(...characters)
const text = (unit: fc.Arbitrary<string>, minLength: number, maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit, minLength, maxLength })

/** A dot-string of at most 63 octets: three atoms of five four-octet characters, and the dots. */
const dotString = (unit: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.array(text(unit, 1, 5), { minLength: 1, maxLength: 3 }).map((atoms) => atoms.join('.'))
const asciiLocal = dotString(from(atext))
const unicodeLocal = dotString(fc.oneof(from(atext), from(nonAscii)))

const qtext = from(printable.filter((one) => one !== '"' && one !== '\\'))
const quotedPair = from(printable).map((one) => `\\${one}`)
const quotedLocal = (...units: fc.Arbitrary<string>[]): fc.Arbitrary<string> =>
  text(fc.oneof(qtext, quotedPair, ...units), 0, 15).map((content) => `"${content}"`)

const ldhLabel = fc
  .tuple(from(letters + digits), text(from(`${letters}${digits}-`), 0, 20), from(letters + digits))
  .map(([first, inner, last]) => `${first}${inner}${last}`)
  .filter((label) => label.slice(2, 4) !== '--')
const topLabel = fc.tuple(from(letters), text(from(letters + digits), 0, 6)).map((parts) => parts.join(''))
const hostname = fc
  .tuple(fc.array(ldhLabel, { maxLength: 4 }), topLabel)
  .map(([labels, top]) => [...labels, top].join('.'))

/**
 * Each label has one script. Right-to-left scripts have their own generator, because the Bidi rule applies to all labels of a
 * domain together.
 */
const scripts = ['äöüßéèñøçœžąőğ', 'αβγδεζηθικλμνξοπρστυφχψως', 'абвгдежзийклмнопрстуфхцчшщъыьэюя']
const moreScripts = [
  '中文例子網路電郵',
  'ひらがなカタカナー',
  '한국어메일',
  'कखगघचछजझ',
  'กขคงจฉชซ',
  'აბგდევზ',
]
const uLabel = fc
  .constantFrom(...scripts, ...moreScripts)
  .chain((script) => text(from(script), 1, 10))
  .map((label) => label.normalize('NFC'))
const unicodeHostname = fc
  .tuple(fc.array(fc.oneof(uLabel, ldhLabel), { maxLength: 2 }), uLabel)
  .map((parts) => [...parts[0], parts[1]].join('.'))
const rtlLabel = fc.constantFrom('אבגדהוזחט', 'بتثجحخدذ').chain((script) => text(from(script), 1, 10))
const rtlHostname = fc.tuple(rtlLabel, fc.oneof(rtlLabel, topLabel)).map((labels) => labels.join('.'))

const octet = fc.oneof(
  fc.integer({ min: 0, max: 255 }).map(String),
  fc.constantFrom('00', '007', '099', '255', '01'),
)
const ipv4 = fc.tuple(octet, octet, octet, octet).map((octets) => octets.join('.'))
const hexGroups = (count: number): fc.Arbitrary<string> =>
  fc
    .array(text(from('0123456789abcdefABCDEF'), 1, 4), { minLength: count, maxLength: count })
    .map((groups) => groups.join(':'))
const compressed = (groupsMax: number): fc.Arbitrary<[string, string]> =>
  fc
    .integer({ min: 0, max: groupsMax })
    .chain((before) =>
      fc
        .integer({ min: 0, max: groupsMax - before })
        .chain((after) => fc.tuple(hexGroups(before), hexGroups(after))),
    )
const ipv6 = fc.oneof(
  hexGroups(8),
  compressed(6).map(([before, after]) => `${before}::${after}`),
  fc.tuple(hexGroups(6), ipv4).map((parts) => parts.join(':')),
  fc
    .tuple(compressed(4), ipv4)
    .map(([[before, after], tail]) => `${before}::${after}${after === '' ? '' : ':'}${tail}`),
)
const literal = fc.oneof(
  ipv4.map((address) => `[${address}]`),
  fc.tuple(fc.constantFrom('IPv6', 'ipv6', 'IPV6'), ipv6).map((parts) => `[${parts.join(':')}]`),
)

const asciiMailbox = fc
  .tuple(fc.oneof(asciiLocal, quotedLocal()), fc.oneof(hostname, literal))
  .map((parts) => parts.join('@'))
const mailbox = fc
  .tuple(
    fc.oneof(asciiLocal, unicodeLocal, quotedLocal(), quotedLocal(from(nonAscii))),
    fc.oneof(hostname, literal, unicodeHostname, rtlHostname),
  )
  .map((parts) => parts.join('@'))

// This second implementation of the ASCII grammar uses regular expressions and arithmetic instead of a scanner.

const oracleLocal =
  /^(?:[A-Za-z0-9!#$%&'*+/=?^_\x60{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_\x60{|}~-]+)*|"(?:[ !#-[\]-~]|\\[ -~])*")$/
const oracleLabel = /^[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?$/

/** Whether ASCII text without `xn--` and `[` is a Mailbox. An unquoted part has no `@`, so the last `@` is the separator. */
function oracle(candidate: string): boolean {
  const divider = candidate.lastIndexOf('@')
  const [local, domain] = [candidate.slice(0, Math.max(divider, 0)), candidate.slice(divider + 1)]
  const labels = domain.split('.')
  return (
    divider > 0 &&
    candidate.length <= 254 &&
    local.length <= 64 &&
    domain.length <= 253 &&
    oracleLocal.test(local) &&
    labels.every(
      (label) => label.length <= 63 && oracleLabel.test(label) && !/^..--/.test(label) && label !== '',
    ) &&
    !/^[0-9]+$/.test(labels.at(-1) ?? '')
  )
}

const mutated = (base: fc.Arbitrary<string>, unit: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc
    .tuple(base, fc.array(fc.tuple(fc.nat(), fc.nat(4), unit), { minLength: 1, maxLength: 3 }))
    .map(([start, accidents]) =>
      accidents.reduce((now, [place, kind, inserted]) => {
        const index = now.length === 0 ? 0 : place % now.length
        const [before, after] = [now.slice(0, index), now.slice(index)]
        if (kind === 0) return before + after.slice(1)
        if (kind === 1) return before + inserted + after.slice(1)
        if (kind === 2) return before + after.slice(0, 1).repeat(2 + (place % 70)) + after.slice(1)
        return before + inserted + after
      }, start),
    )

const significant = from(' "\\@.-_()<>[],:;\n\x00\x7Fa1xX')

describe(`addresses generated from the ABNF (seed ${seed})`, () => {
  test('all of them are valid', () => {
    fc.assert(
      fc.property(mailbox, (given) => {
        expect(parseEmail(given)).toMatchObject({ valid: true })
      }),
      runs,
    )
  })

  test('normalizing twice changes nothing, and the findings stay the same', () => {
    fc.assert(
      fc.property(mailbox, (given) => {
        const parsed = parseEmail(given)
        if (!parsed.valid) throw new Error(parsed.reason)
        const { address } = parsed
        expect(parseEmail(address.normalized)).toEqual(parsed)
        expect(address.normalized).toBe(`${address.localPart}@${address.domain}`)
        expect(address.normalized).toBe(address.normalized.normalize('NFC'))
        expect(address.asciiDomain).toMatch(/^[\x21-\x7E]+$/)
      }),
      runs,
    )
  })

  test('an address with A-labels in its domain is the same', () => {
    fc.assert(
      fc.property(fc.tuple(asciiLocal, fc.oneof(unicodeHostname, rtlHostname)), ([local, domain]) => {
        const parsed = parseEmail(`${local}@${domain}`)
        if (!parsed.valid) throw new Error(parsed.reason)
        expect(parseEmail(`${local}@${parsed.address.asciiDomain}`)).toEqual(parsed)
      }),
      runs,
    )
  })

  test('case and composition of a domain, and unnecessary quotes, make no difference', () => {
    fc.assert(
      fc.property(asciiLocal, hostname, uLabel, (local, host, label) => {
        const plain = parseEmail(`${local}@${label}.${host.toLowerCase()}`)
        expect(plain).toMatchObject({ valid: true })
        const quoted = `"${[...local].map((one) => `\\${one}`).join('')}"`
        if (quoted.length > 64) return
        expect(parseEmail(`${quoted}@${label.normalize('NFD')}.${host.toUpperCase()}`)).toEqual(plain)
      }),
      runs,
    )
  })
})

describe(`compared with a second implementation of the grammar (seed ${seed})`, () => {
  const agrees = (candidate: string): void => {
    fc.pre(!/xn--/i.test(candidate) && !candidate.includes('['))
    expect({ candidate, valid: parseEmail(candidate).valid }).toEqual({
      candidate,
      valid: oracle(candidate),
    })
  }

  test('mutated addresses get the same result', () => {
    const bases = fc.oneof(
      fc.tuple(fc.oneof(asciiLocal, quotedLocal()), hostname).map((parts) => parts.join('@')),
      asciiMailbox,
    )
    fc.assert(fc.property(mutated(bases, significant), agrees), { ...runs, numRuns: randomCases(3_000) })
  })

  test('short texts of significant characters get the same result', () => {
    fc.assert(fc.property(text(significant, 0, 9), agrees), { ...runs, numRuns: randomCases(3_000) })
  })

  test('addresses near the length limit get the same result', () => {
    const long = fc
      .tuple(
        fc.integer({ min: 60, max: 66 }),
        fc.array(fc.integer({ min: 58, max: 64 }), { minLength: 1, maxLength: 4 }),
      )
      .map(([local, labels]) => `${'l'.repeat(local)}@${labels.map((size) => 'd'.repeat(size)).join('.')}`)
    fc.assert(fc.property(long, agrees), runs)
    const lengths = Array.from({ length: 70 }, (_, size) => size)
    for (const local of [1, 2, 64, 65])
      for (const size of lengths)
        agrees(`${'l'.repeat(local)}@${`${'d'.repeat(60)}.`.repeat(3)}${'e'.repeat(size)}`)
  })
})

describe('any input', () => {
  test('text beyond 320 characters is not read, however long', () => {
    const tenMegabytes = 10_000_000
    const heads = ['', 'a@b.', '"', 'a@[IPv6:', 'é@', '\uD800', '\0', 'a@xn--']
    for (const head of heads)
      for (const tail of ['a', '.', '-', '"', '\\', '\u0301', '\uD800', '@', '1.'])
        expect(parseEmail(head + tail.repeat(tenMegabytes / tail.length))).toEqual({
          valid: false,
          reason: 'too_long',
        })
  })

  test('repetitions that make patterns backtrack get a result at every length up to the limit', () => {
    const repeated = [
      'a.',
      'a',
      '-',
      '1-',
      '\\"',
      '"',
      '@',
      '[',
      '::',
      'é',
      '\u0301',
      'ا\u200C',
      'क\u094D\u200D',
      'א1',
    ]
    for (const before of ['', 'a@', '"', 'a@[', 'a@[IPv6:', 'a@xn--', 'é@'])
      for (const unit of repeated)
        for (const after of ['', '!', '@', ']', '.com'])
          for (const length of [10, 20, 40, 80, 160, 320]) {
            const body = unit.repeat(length).slice(0, Math.max(0, length - before.length - after.length))
            expect(parseEmail(before + body + after)).toBeTypeOf('object')
          }
  })
})
