/**
 * What the tests of others say about addresses, as facts: email_validator's (Python, 2.x), validator.js's and
 * isemail's. Left out are their
 * policies: that a domain has a dot or a known ending, and what their options allow. Emoji in
 * domains, which isemail allows, are refused by IDNA2008.
 */
import { expect, test } from 'vitest'
import { parseEmail } from '../../src/capabilities/email-validation/syntax/parse.ts'

const label49 = '1111111111222222222233333333334444444444555555555'
const label51 = '6666666666777777777788888888889999999999000000000'
const four = `${label49}.${label51}.${label49}.${label51}`

const pythonValid = [
  ...['Abc@example.tld', 'Abc.123@test-example.com', 'user+mailbox/department=shipping@example.tld'],
  ...["!#$%&'*+-/=?^_`.{|}~@example.tld", 'jeff@臺網中心.tw', '伊昭傑@郵件.商務', 'राम@मोहन.ईन्फो'],
  ...[
    'юзер@екзампл.ком',
    'θσερ@εχαμπλε.ψομ',
    '葉士豪@臺網中心.tw',
    '葉士豪@臺網中心.台灣',
    'jeff葉@臺網中心.tw',
  ],
  ...['ñoñó@example.tld', '我買@example.tld', '甲斐黒川日本@example.tld', 'ιωάννης@εεττ.gr'],
  ...['чебурашкаящик-с-апельсинами.рф@example.tld', 'उदाहरण.परीक्ष@domain.with.idn.tld'],
  ...['"unnecessarily.quoted.local.part"@example.com', '"quoted..local.part"@example.com'],
  ...[
    '"quoted.with.at@"@example.com',
    '"quoted with space"@example.com',
    '"quoted.with.dquote\\""@example.com',
  ],
  ...['"unnecessarily.quoted.with.unicode.λ"@example.com', '"quoted.with..unicode.λ"@example.com'],
  ...['"quoted.with.extraneous.\\escape"@example.com', 'me@[127.0.0.1]', 'me@[IPv6:::1]'],
  'me@[IPv6:0000:0000:0000:0000:0000:0000:0000:0001]',
]
const pythonInvalid = [
  ...[
    'my@.leadingdot.com',
    'my@．leadingfwdot.com',
    'my@twodots..com',
    'my@twofwdots．．.com',
    'my@trailingdot.com.',
  ],
  ...[
    'my@trailingfwdot.com．',
    'me@-leadingdash',
    'me@－leadingdashfw',
    'me@trailingdash-',
    'me@trailingdashfw－',
  ],
  ...[
    'my@baddash.-.com',
    'my@baddash.-a.com',
    'my@baddash.b-.com',
    'my@baddashfw.－.com',
    'my@baddashfw.－a.com',
  ],
  ...[
    'my@baddashfw.b－.com',
    'my@example.com\n',
    'my@example\n.com',
    'me@x!',
    'me@x ',
    '.leadingdot@domain.com',
  ],
  ...['twodots..here@domain.com', 'trailingdot.@domain.email', 'me@⒈wouldbeinvalid.com', '@example.com'],
  ...[
    'white space@test',
    'test@white space',
    '\nmy@example.com',
    'm\ny@example.com',
    'my\n@example.com',
    'test@\n',
  ],
  ...['bad"quotes"@example.com', 'obsolete."quoted".atom@example.com'],
  ...['11111111112222222222333333333344444444445555555555666666666677777@example.com'],
  ...['111111111122222222223333333333444444444455555555556666666666777777@example.com'],
  ...[`me@${four}.111111111122222222223333333333444444444455555555556.com`, `me@${four}.${label49}566.com`],
  ...[`me@中${four}.${label49}566.com`, `my.long.address@${four}.11111111112222222222333333333344444x.info`],
]

const webValid = [
  ...[
    'foo@bar.com',
    'x@x.au',
    'foo@bar.com.au',
    'foo+bar@bar.com',
    'hans.m端ller@test.com',
    'hans@m端ller.com',
  ],
  ...[
    'test|123@m端ller.com',
    'test123+ext@gmail.com',
    '"foobar"@example.com',
    '"  foo  m端ller "@example.com',
  ],
  ...[
    'some.name.midd.leNa.me.and.locality+extension@GoogleMail.com',
    '"foo\\@bar"@example.com',
    'test@1337.com',
  ],
  ...[`${'a'.repeat(64)}@${'a'.repeat(63)}.com`, `${'a'.repeat(31)}@gmail.com`, 'test.1@gmail.com'],
  ...['email@[123.123.123.123]', '"  foo  bar  "@example.com', 'email@foo.gmail.com'],
]
const spaces = [
  0x20,
  0xa0,
  0x1680,
  0x202f,
  0x205f,
  0x3000,
  ...Array.from({ length: 11 }, (_, at) => 0x2000 + at),
]
const webInvalid = [
  ...[
    'invalidemail@',
    'invalid.com',
    '@invalid.com',
    'foo@bar.com.',
    'foo@_bar.com',
    'somename@ｇｍａｉｌ.com',
  ],
  ...['foo@bar.co.uk.', `${'ｇｍａｉｌ'.repeat(5)}@gmail.com`, `${'a'.repeat(64)}@${'a'.repeat(251)}.com`],
  ...[`${'a'.repeat(65)}@${'a'.repeat(250)}.com`, `${'a'.repeat(64)}@${'a'.repeat(64)}.com`],
  `${'a'.repeat(64)}@${'a'.repeat(63)}.${'a'.repeat(63)}.${'a'.repeat(63)}.${'a'.repeat(58)}.com`,
  ...spaces.map((code) => `test@invalid.co${String.fromCodePoint(code)}m`),
  ...[
    'multiple..dots@stillinvalid.com',
    'test123+invalid! sub_address@gmail.com',
    'ends.with.dot.@gmail.com',
  ],
  ...['gmail...ignores...dots...@gmail.com', 'multiple..dots@gmail.com', 'wrong()[]",:;<>@@gmail.com'],
  ...[
    '"wrong()[]",:;<>@@gmail.com',
    'username@domain.com\uFFFD',
    'username@domain.com©',
    'nbsp\u00A0test@test.com',
  ],
  ...['nbsp_test@te\u00A0st.com', '"foobar@gmail.com', '"foo"bar@gmail.com', 'foo"bar"@gmail.com'],
  ...['email@0.0.0.256', 'email@26.0.0.256', 'email@[266.266.266.266]', 'email@255.255.255.255'],
  ...['Some Name <foo@bar.com>', 'Some Name <invalidemail@>', 'Name foo@bar.co.uk', 'name;<jh@gmail.com>'],
  'Deleted-user-id-19430-Team-5051deleted-user-id-19430-team-5051XXXXXX@example.com',
]

const abc = 'abcdefghijklmnopqrstuvwxyz'
const long63 = `${abc}${abc}abcdefghiklm`.slice(0, 63)
const label59 = `${abc}${abc}abcdefg`
const three = `${label59}.${label59}.${label59}`

const classicValid = [
  ...[
    'test@io',
    'test@iana.org',
    'test@nominet.org.uk',
    'test@about.museum',
    'a@iana.org',
    'êjness@iana.org',
  ],
  ...[
    'ñoñó1234@iana.org',
    'ñoñó1234@something.com',
    '伊昭傑@郵件.商務',
    '\u{10437}\u{24B62}@iana.org',
    '123@iana.org',
  ],
  ...[
    'test.test@iana.org',
    '!#$%&`*+/=?^`{|}~@iana.org',
    'test@123.com',
    `${long63}@iana.org`,
    'test@mason-dixon.com',
  ],
  ...['xn--test@iana.org', 'test@org', '"test"@iana.org', '""@iana.org', '"\\a"@iana.org', '"\\""@iana.org'],
  ...['"\\\\"@iana.org', '"test\\ test"@iana.org', 'test@[255.255.255.255]', 'test@[IPv6:::]'],
  'test@[IPv6:1111:2222:3333:4444:5555:6666:7777:8888]',
  'test@[IPv6:1111:2222:3333:4444:5555::8888]',
  'test@[IPv6:::3333:4444:5555:6666:7777:8888]',
  'test@[IPv6:1111:2222:3333:4444:5555:6666:255.255.255.255]',
  'test@[IPv6:1111:2222:3333:4444::255.255.255.255]',
]
/** Comments, folding white space and obsolete forms belong to headers: no envelope has them. */
const classicInvalid = [
  ...[
    '',
    '\r',
    'test',
    '@',
    'test@',
    '@io',
    '@iana.org',
    '.test@iana.org',
    'test.@iana.org',
    'test..iana.org',
  ],
  ...[
    'test_exa-mple.com',
    'test\\@test@iana.org',
    'test@iana.123',
    'test@255.255.255.255',
    `${long63}no@iana.org`,
  ],
  ...[
    `${'\u{1F606}'.repeat(17)}@iana.org`,
    `test@${long63}n`,
    `test@${long63}n.com`,
    'test@-iana.org',
    'test@iana-.com',
  ],
  ...['test@.iana.org', 'test@iana.org.', 'test@iana..com', `${long63}@${three}.abcdefghijklmno`],
  ...[
    `abcdef@${three}.${label59}.hijklmnopqrstuvw`,
    `a@${three}.${label59}.abcdefghijkl.hijk`,
    '"\r',
    '"""@iana.org',
  ],
  ...['"\\"@iana.org', 'test"@iana.org', '"test@iana.org', '"test"test@iana.org', 'test"text"@iana.org'],
  ...['"test""test"@iana.org', '"test"."test"@iana.org', '"test".test@iana.org', '"test\0"@iana.org'],
  ...['"test\\\0"@iana.org', '"test\r\n test"@iana.org', `"${abc} ${abc} abcdefghj"@iana.org`],
  ...[`"${abc} ${abc} abcdefg\\h"@iana.org`, 'test@a[255.255.255.255]', 'test@[255.255.255]'],
  ...[
    'test@[255.255.255.255.255]',
    'test@[255.255.255.256]',
    'test@[1111:2222:3333:4444:5555:6666:7777:8888]',
  ],
  ...[
    'test@[IPv6:1111:2222:3333:4444:5555:6666:7777]',
    'test@[IPv6:1111:2222:3333:4444:5555:6666:7777:888G]',
  ],
  ...[
    'test@[IPv6:1111:2222:3333:4444:5555:6666:7777:8888:9999]',
    'test@[IPv6:1111:2222:3333:4444:5555:6666::8888]',
  ],
  ...['test@[IPv6:1111:2222:3333:4444:5555:6666::7777:8888]', 'test@[IPv6::3333:4444:5555:6666:7777:8888]'],
  ...['test@[IPv6:1111::4444:5555::8888]', 'test@[IPv6:1111:2222:3333:4444:5555:255.255.255.255]'],
  'test@[IPv6:1111:2222:3333:4444:5555:6666:7777:255.255.255.255]',
  'test@[IPv6:1111:2222:3333:4444:5555:6666::255.255.255.255]',
  'test@[IPv6:1111:2222:3333:4444:::255.255.255.255]',
  ...['test@[IPv6::255.255.255.255]', 'test@[255.255.255.255].local', 'test@local.[255.255.255.255]'],
  ...[
    'test@local.[255.255.255.255].local',
    'test@local.(comment)[255.255.255.255].local',
    'test@local. [255.255.255.255]',
  ],
  ...[
    'test@local.[255.255.255.255](comment).local',
    'test@local.[255.255.255.255] .local',
    ' test @iana.org',
  ],
  ...['test@ iana .com', 'test . test@iana.org', '\r\n test@iana.org', '\r\n \r\n test@iana.org', '(\r'],
  ...[
    '(comment)test@iana.org',
    '((comment)test@iana.org',
    '(comment(comment))test@iana.org',
    'test@(comment)iana.org',
  ],
  ...['test(comment)@iana.org', 'test(comment)test@iana.org', 'test@(comment)[255.255.255.255]'],
  ...[`(comment)${long63}@iana.org`, 'test@iana.org\n', 'test@iana.org-', '(test@iana.org', 'test@(iana.org'],
  ...[
    'test@[1.2.3.4',
    '"test\\"@iana.org',
    '(comment\\)test@iana.org',
    'test@iana.org(comment\\)',
    'test@iana.org(comment\\',
  ],
  ...[
    'test@[RFC-5322-domain-literal]',
    'test@[RFC-5322-郵件ñó-domain-literal]',
    'test@[RFC-5322]-domain-literal]',
  ],
  ...['test@[RFC-5322].domain-literal]', 'test@[RFC-5322-[domain-literal]', 'test@[', 'test@[\u0007]'],
  ...[
    'test@[RFC-5322-\\\u0007-domain-literal]',
    'test@[RFC-5322-\\t-domain-literal]',
    'test@[RFC 5322 domain literal]',
  ],
  ...[
    'test@[RFC-5322-domain-literal\\]',
    'test@[RFC-5322-domain-literal\\',
    'test@[RFC-5322-domain-literal] (comment)',
  ],
  ...[
    '\u007F@iana.org',
    'test@\u007F.org',
    '"\u007F"@iana.org',
    '"\\\u007F"@iana.org',
    'test@iana.org\r',
    '\rtest@iana.org',
  ],
  ...[
    '"\rtest"@iana.org',
    '(\r)test@iana.org',
    'test@iana.org(\r)',
    'test@<iana>.org',
    '\ntest@iana.org',
    '"\n"@iana.org',
  ],
  ...[
    '"\\\n"@iana.org',
    '(\n)test@iana.org',
    '\u0007@iana.org',
    'test@\u0007.org',
    '"\u0007"@iana.org',
    '"\\\u0007"@iana.org',
  ],
  ...[
    '\r\ntest@iana.org',
    ' \r\ntest@iana.org',
    ' \r\n test@iana.org',
    'test@iana.org\r\n ',
    'test@iana.org \r\n',
  ],
  ...['test@iana. org', 'test@[\r', 'test@[\r\n', ' test@iana.org', 'test@iana.org ', 'test@[IPv6:1::2:]'],
  ...[
    '"test\\\u0094"@iana.org',
    'test@iana/icann.org',
    'test@iana!icann.org',
    'test@iana?icann.org',
    'test@iana^icann.org',
  ],
  ...[
    'test@iana{icann}.org',
    'test.(comment)test@iana.org',
    'test@iana.(comment)org',
    'test@iana(comment)iana.org',
  ],
  ...['(comment\r\n comment)test@iana.org', 'test\uD800@invalid', '"\uD800"@invalid', '"\\\uD800"@invalid'],
]

test.each([
  ['email_validator', pythonValid, pythonInvalid],
  ['validator.js', webValid, webInvalid],
  ['isemail', classicValid, classicInvalid],
] as const)('%s: every undisputed case has its verdict', (_, valid, invalid) => {
  expect(valid.filter((text) => !parseEmail(text).valid)).toEqual([])
  expect(valid.length + invalid.length).toBeGreaterThan(60)
  expect(invalid.filter((text) => parseEmail(text).valid)).toEqual([])
})
