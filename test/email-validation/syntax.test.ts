/** Examples show the meaning of each rule, in the order of the rules. `syntax-grammar.test.ts` covers the whole grammar. */
import { describe, expect, test } from 'vitest'
import { type SyntaxReason, syntaxReasons } from '../../src/capabilities/email-validation/evidence.ts'
import { parseEmail } from '../../src/capabilities/email-validation/syntax/parse.ts'

const times = (text: string, count: number): string => text.repeat(count)
const local64 = times('l', 64)
const label63 = times('d', 63)
const domain253 = `${label63}.${label63}.${label63}.${times('d', 61)}`
/** With a local part of 64 octets and `@`, gives an address of 254 octets. */
const domain189 = `${label63}.${label63}.${times('d', 61)}`

const shown = (text: string): string => {
  const escaped = text.replace(
    /[^\x21-\x7E]/gsu,
    (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`,
  )
  return escaped.length > 60 ? `${escaped.slice(0, 57)}… (${text.length})` : escaped
}

const accepts = (title: string, texts: readonly string[]): void => {
  describe(title, () => {
    test.each(texts.map((text) => [shown(text), text] as const))('%s', (_, text) => {
      const parsed = parseEmail(text)
      expect(parsed).toMatchObject({ valid: true, address: { normalized: text } })
    })
  })
}

/** Each pair is [given, normalized]. */
const rewrites = (title: string, pairs: readonly (readonly [string, string])[]): void => {
  describe(title, () => {
    test.each(pairs.map(([text, to]) => [shown(text), shown(to), text, to] as const))(
      '%s is %s',
      (_, __, text, normalized) => {
        expect(parseEmail(text)).toMatchObject({ valid: true, address: { normalized } })
        expect(parseEmail(normalized)).toEqual(parseEmail(text))
      },
    )
  })
}

const refused = new Set<SyntaxReason>()
const refuses = (reason: SyntaxReason, because: string, texts: readonly string[]): void => {
  refused.add(reason)
  describe(`${reason}: ${because}`, () => {
    test.each(texts.map((text) => [shown(text), text] as const))('%s', (_, text) => {
      expect(parseEmail(text)).toEqual({ valid: false, reason })
    })
  })
}

describe('accepted unchanged', () => {
  accepts('a Dot-string of atoms (RFC 5321 §4.1.2)', [
    'a@b.co',
    'first.middle.last@mail.example.co.uk',
    '_user_@example.com',
    'customer/department=shipping@example.com',
    "o'reilly@example.com",
  ])
  accepts('sub-domains of letters, digits and inner hyphens (RFC 5321 §4.1.2, RFC 1123 §2.1)', [
    'a@3com.example',
    'a@x--y.com',
    'a@a.b.c.d.e.f.g.h',
  ])
  accepts('a Quoted-string if the content needs quotes (RFC 5321 §4.1.2)', [
    '""@example.com',
    '"first last"@example.com',
    '"first..last"@example.com',
    '"(no comment)"@example.com',
    '"\\""@example.com',
    '"a\\"b\\\\c"@example.com',
    `"${times(' ', 62)}"@example.com`,
  ])
  accepts('address literals (RFC 5321 §4.1.3)', [
    'a@[192.0.2.1]',
    'a@[0.0.0.0]',
    'a@[IPv6:::1]',
    'a@[IPv6:2001:db8::1]',
  ])
  accepts('local parts outside ASCII (RFC 6531 §3.3)', [
    'josé@example.com',
    '用户@example.com',
    'मे\u094D\u200Dरे@example.com',
    'I\u2764\uFE0FX\u{1F36B}@example.com',
  ])
  accepts('U-labels (RFC 5890 §2.3.2.1, RFC 5892)', [
    'a@münchen.example',
    'a@βόλος.example',
    'a@ಡೇಟಾಮೇಲ್.ಭಾರತ',
    'a@עברית.example',
    'a@क्\u200Dष.example',
    'a@l·l.example',
    'a@א׳.example',
    'a@א״א.example',
    'a@ا١٢.example',
    `a@${times('é', 57)}.example`,
  ])
})

describe('accepted, and normalized', () => {
  rewrites('the domain in lower case, the local part unchanged (RFC 5321 §2.4)', [
    ['John.Doe@EXAMPLE.Com', 'John.Doe@example.com'],
    ['a@MÜNCHEN.example', 'a@münchen.example'],
    ['É@example.com', 'É@example.com'],
    ['a@ΣΑΣ.example', 'a@σασ.example'],
    ['a@\u212Bngstrom.example', 'a@ångstrom.example'],
  ])
  rewrites('no unnecessary quotes and backslashes (RFC 5321 §4.1.2)', [
    ['"abc"@example.com', 'abc@example.com'],
    ['"a.b"@example.com', 'a.b@example.com'],
    ['"a\\bc"@example.com', 'abc@example.com'],
    ['"a\\ b"@example.com', '"a b"@example.com'],
    ['"a\\@b"@example.com', '"a@b"@example.com'],
    ['"\\a\\"\\b"@example.com', '"a\\"b"@example.com'],
    ['"é"@example.com', 'é@example.com'],
  ])
  rewrites('A-labels as U-labels (RFC 5890)', [
    ['a@xn--mnchen-3ya.example', 'a@münchen.example'],
    ['a@XN--MNCHEN-3YA.example', 'a@münchen.example'],
    ['a@xn--80ak6aa92e.com', 'a@аррӏе.com'],
    ['é@xn--fiqs8s', 'é@中国'],
  ])
  rewrites('canonically equivalent text as NFC (RFC 6531 §3.2, RFC 5198)', [
    ['jose\u0301@example.com', 'josé@example.com'],
    ['a@mu\u0308nchen.example', 'a@münchen.example'],
    ['\u1FEF@example.com', '`@example.com'],
    ['\u1112\u1161\u11AB@example.com', '한@example.com'],
  ])
  rewrites('literals as in RFC 5952, and decimal octets', [
    ['a@[192.000.002.001]', 'a@[192.0.2.1]'],
    ['a@[ipv6:2001:DB8::1]', 'a@[IPv6:2001:db8::1]'],
    ['a@[IPv6:0:0:0:0:0:0:0:1]', 'a@[IPv6:::1]'],
    ['a@[IPv6:::ffff:192.0.2.1]', 'a@[IPv6:::ffff:c000:201]'],
    ['a@[IPv6:1:2:3:4:5:6:192.0.2.1]', 'a@[IPv6:1:2:3:4:5:6:c000:201]'],
  ])
})

describe('refused, for the first rule broken', () => {
  refuses('empty', 'nothing to judge', [''])
  refuses('too_long', 'a path has at most 256 octets, including its brackets (RFC 5321 §4.5.3.1.3)', [
    `a@${domain253}`,
    `${local64}@${domain189}.d`,
    `${times('é', 32)}@${domain189}.a`,
    // This domain is short enough as A-labels, but too long as U-labels.
    `${times('a', 60)}@${Array.from({ length: 4 }, () => times('例', 18)).join('.')}`,
  ])
  refuses('no_at_sign', 'an address has two parts', ['plainaddress', 'example.com'])
  refuses('control_character', 'not printable, and CR LF would end the command (RFC 5321 §4.1.2)', [
    'a\n@example.com',
    'a@example.com\n',
    'a@exam\r\nple.com',
    'a\0@example.com',
  ])
  refuses('local_part_empty', 'RFC 5321 §4.1.2', ['@', '@example.com'])
  refuses(
    'local_part_too_long',
    'at most 64 octets, including quotes and backslashes (RFC 5321 §4.5.3.1.1)',
    [
      `l${local64}@example.com`,
      `${times('a.', 32)}a@example.com`,
      `${times('é', 33)}@example.com`,
      `${times('\u{1F36B}', 16)}a@example.com`,
    ],
  )
  refuses(
    'local_part_character',
    'special characters need quotes, and headers do not belong in an envelope',
    [' a@example.com', 'a @example.com', 'a;b@example.com', 'a(comment)@example.com', '<a@example.com>'],
  )
  refuses('local_part_character', 'invisible characters make two mailboxes look alike', [
    'a\u00A0b@example.com',
    'a\u00ADb@example.com',
    'a\u200Bb@example.com',
    'a\u200Cb@example.com',
    '\u{1F468}\u200D\u{1F469}@example.com',
    'a\u200E@example.com',
  ])
  refuses('local_part_character', 'noncharacters, unassigned, private use and replacement characters', [
    'a\uFFFE@example.com',
    'a\u0378@example.com',
  ])
  refuses(
    'local_part_character',
    'a combining mark needs a base character; and NFC may produce special characters',
    ['\u0301a@example.com', '"\u0301a"@example.com', '\uFE0Fa@example.com', 'a\u037Eb@example.com'],
  )
  refuses('local_part_dot', 'dots separate atoms (RFC 5321 §4.1.2)', [
    '.a@example.com',
    'a.@example.com',
    'a..b@example.com',
  ])
  refuses('quoted_string', 'closed, complete, and only ASCII escaped (RFC 5321 §4.1.2)', [
    '"',
    '"a',
    '"a"b@example.com',
    '"a"."b"@example.com',
    '"a\\"@example.com',
    '"a\\é"@example.com',
  ])
  refuses('domain_empty', 'RFC 5321 §4.1.2', ['a@', '"a"@', 'é@'])
  refuses('domain_too_long', 'at most 253 octets as A-labels (RFC 1035 §2.3.4)', [
    `a@${domain253}.d`,
    `a@${times('b.', 127)}c`,
    `a@${Array.from({ length: 20 }, () => 'éééé').join('.')}.${times('a.', 25)}com`,
  ])
  refuses('domain_character', 'letters, digits and hyphens (RFC 5321 §4.1.2)', [
    'a@b@c',
    'a@example.com ',
    'a@_dmarc.example.com',
    'a@example/com',
  ])
  refuses('domain_character', 'a top-level domain is not a number (RFC 1123 §2.1, RFC 3696 §2)', [
    'a@192.0.2.1',
    'a@example.123',
  ])
  refuses('domain_dot', 'dots separate labels; the root is not written (RFC 5321 §2.3.5)', [
    'a@.',
    'a@.example.com',
    'a@example.com.',
  ])
  refuses('label_too_long', 'at most 63 octets as A-label (RFC 1035 §2.3.4)', [
    `a@${label63}d.com`,
    `a@com.${label63}d`,
    `a@${times('é', 58)}.example`,
    `a@xn--${times('a', 60)}.example`,
  ])
  refuses('label_hyphen', 'only inside a label, and reserved in third and fourth place (RFC 5890 §2.3.1)', [
    'a@-example.com',
    'a@example.-com',
    'a@example-.com',
    'a@-',
    'a@ab--cd.com',
  ])
  refuses('label_idna', 'letters, marks and digits only (RFC 5892)', [
    'a@\u{1F4A9}.example',
    'a@example\uFFFD.com',
    'a@ｇｍａｉｌ.com',
    'a@example．com',
    'a@exa\u2003mple.com',
    'a@exa\u00ADmple.com',
  ])
  refuses(
    'label_idna',
    'marks, joiners, dots and digits out of context (RFC 5891 §4.2.3, RFC 5892 appendix A)',
    [
      'a@\u0301a.example',
      'a@a\u200Db.example',
      'a@a\u200Cb.example',
      'a@क\u200Dष.example',
      'a@a·b.example',
      'a@·l.example',
      'a@α͵.example',
      'a@a׳.example',
      'a@a・b.example',
      'a@ا١۱.example',
    ],
  )
  refuses('label_idna', 'one direction per label (RFC 5893 §2)', [
    'a@אa.example',
    'a@1א.example',
    'a@א-א1٢.example',
    'a@١.example',
    'a@bʹ.א',
  ])
  refuses('label_idna', 'an A-label is the encoding of a U-label (RFC 5890 §2.3.2.1)', [
    'a@xn--0.example',
    'a@xn--abc.example',
    'a@xn--n3h.example',
    'a@xn--mnchen-3yA1.example',
    'a@xn--münchen.example',
    // These are the Punycode of Münster with its capital letter, and of `a` with only a combining mark.
    'a@xn--Mnster-0ya8.example',
    'a@xn--0ca24w.example',
  ])
  refuses('domain_literal', 'a complete address, with the one registered tag (RFC 5321 §4.1.3)', [
    'a@[]',
    'a@[192.0.2.1].com',
    'a@[192.0.2.0001]',
    'a@[::1]',
    'a@[IPv6:1]',
    'a@[IPv6:1::2::3]',
  ])
  refuses('not_normalizable', 'half a surrogate pair has no UTF-8', [
    '\uD800@example.com',
    'a\uDC00@example.com',
    '"\uD83D"@example.com',
  ])

  test('every reason has test cases', () => {
    expect([...refused].sort()).toEqual([...syntaxReasons].sort())
  })
})

describe('the result for an address', () => {
  test('its parts, in Unicode and in the form for DNS and SMTP', () => {
    expect(parseEmail('José.X@MÜNCHEN.Example')).toEqual({
      valid: true,
      address: {
        normalized: 'José.X@münchen.example',
        localPart: 'José.X',
        domain: 'münchen.example',
        asciiDomain: 'xn--mnchen-3ya.example',
        smtputf8: true,
        quoted: false,
        domainLiteral: false,
      },
    })
  })

  test('a domain outside ASCII alone needs no SMTPUTF8: its A-labels are sent', () => {
    expect(parseEmail('a@münchen.example')).toMatchObject({ address: { smtputf8: false } })
  })

  test('a local part that is ASCII after NFC needs no SMTPUTF8', () => {
    expect(parseEmail('\u212A@example.com')).toMatchObject({ address: { smtputf8: false } })
  })

  test('it is quoted only if still necessary', () => {
    expect(parseEmail('"a b"@example.com')).toMatchObject({ address: { quoted: true, localPart: '"a b"' } })
    expect(parseEmail('"a"@example.com')).toMatchObject({ address: { quoted: false, localPart: 'a' } })
  })

  test('a literal keeps its brackets', () => {
    expect(parseEmail('a@[IPv6:::1]')).toMatchObject({
      address: { domain: '[IPv6:::1]', asciiDomain: '[IPv6:::1]', domainLiteral: true },
    })
  })
})
