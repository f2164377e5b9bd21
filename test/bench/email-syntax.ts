import isemail from 'isemail'
import validator from 'validator'
import { readAddress } from '../../src/capabilities/email-validation/read-address.ts'
import { readAsMeant } from '../../src/capabilities/email-validation/syntax/as-meant.ts'
import { parseEmail } from '../../src/capabilities/email-validation/syntax/parse.ts'
import { openRedis } from '../../src/concurrency/redis.ts'
import { randomOf } from './random.ts'
import { type BenchOptions, median, type Row, ratioRow } from './row.ts'

/**
 * An address in, a verdict out, against `isEmail` of validator.js and against isemail, with their defaults. They take turns within a
 * round, over the same addresses. The typical mix is what forms and address books contain; the hard mix is what validators are tested with.
 *
 * `contestants` answer the same question by name, so that a longer pipeline can be compared with the syntax alone. The
 * second run has the Redis client loaded, which once made every string slow.
 */

const addressesPerPass = 100_000
const warmUpPasses = 3

/** Each has its own loop: a shared loop would be optimized for the first contestant. */
type Contestant = { readonly name: string; readonly accepted: (texts: readonly string[]) => number }

const contestants: readonly Contestant[] = [
  {
    name: 'e-mail syntax',
    accepted: (texts) => {
      let kept = 0
      for (const text of texts) if (parseEmail(readAsMeant(text)).valid) kept++
      return kept
    },
  },
  {
    name: 'e-mail syntax and lists',
    accepted: (texts) => {
      let kept = 0
      for (const text of texts) if (readAddress(text).lists?.disposable === false) kept++
      return kept
    },
  },
]
const peers: readonly (Contestant & { readonly least: number })[] = [
  {
    name: 'validator.js',
    accepted: (texts) => {
      let kept = 0
      for (const text of texts) if (validator.isEmail(text)) kept++
      return kept
    },
    least: 3,
  },
  {
    name: 'isemail',
    accepted: (texts) => {
      let kept = 0
      for (const text of texts) if (isemail.validate(text)) kept++
      return kept
    },
    least: 3,
  },
]

export const emailSyntax = async (options: BenchOptions): Promise<Row[]> => {
  const rows = await measured(options, '')
  // This cannot be undone, so it comes last: nothing else is measured in this process afterwards.
  const redis = await openRedis({ url: 'redis://127.0.0.1:1', name: 'none', script: '' })
  redis.on('error', () => undefined)
  redis.disconnect()
  return [...rows, ...(await measured(options, ', Redis in use'))]
}

const measured = async ({ rounds, begin, report }: BenchOptions, where: string): Promise<Row[]> => {
  const random = randomOf(7)
  const mixes: readonly { title: string; next: () => string }[] = [
    { title: 'typical mix', next: () => typicalText(random) },
    { title: 'nasty corpus', next: () => pick(nastyTexts, random) },
  ]
  let kept = 0
  const rows: Row[] = []
  begin()
  for (const { title, next } of mixes) {
    const taken = new Map([...contestants, ...peers].map(({ name }) => [name, [] as number[]]))
    for (let round = 0; round < rounds + warmUpPasses; round++) {
      const texts = Array.from({ length: addressesPerPass }, next)
      // The first contestant reads texts for the first time, so they take turns at being first.
      const order = [...contestants, ...peers]
      const turn = round % order.length
      for (const { name, accepted } of [...order.slice(turn), ...order.slice(0, turn)]) {
        const startedAt = performance.now()
        kept += accepted(texts)
        const ns = ((performance.now() - startedAt) * 1e6) / addressesPerPass
        if (round >= warmUpPasses) taken.get(name)?.push(ns)
      }
    }
    const figures = [...taken].map(([name, ns]) => `${name} ${ns.map(Math.round)}`).join(', ')
    report(`email-syntax, ${title}${where}: ${figures} ns (${kept})`)
    for (const contestant of contestants)
      for (const peer of peers) {
        const ours = taken.get(contestant.name) ?? []
        const theirs = taken.get(peer.name) ?? []
        rows.push(
          ratioRow(`${contestant.name} against ${peer.name}, ${title}${where}`, {
            measured: 1e9 / median(ours),
            against: 1e9 / median(theirs),
            ratio: median(ours.map((ns, i) => (theirs[i] ?? Number.NaN) / ns)),
            unit: '/s',
            bound: { least: title === 'typical mix' ? peer.least : 1 },
          }),
        )
      }
  }
  return rows
}

const pick = (list: readonly string[], random: () => number): string =>
  list[Math.floor(random() * list.length)] ?? ''

const given = [
  'anna',
  'ben',
  'carla',
  'david',
  'elif',
  'farid',
  'giulia',
  'henrik',
  'ines',
  'joao',
  'kenji',
  'lena',
]
const family = [
  'smith',
  'garcia',
  'mueller',
  'rossi',
  'ivanov',
  'kim',
  'nguyen',
  "o'brien",
  'de-vries',
  'silva',
]
const hosts = [
  'gmail.com',
  'outlook.com',
  'yahoo.co.uk',
  'gmx.de',
  'icloud.com',
  'proton.me',
  'mail.ru',
  'qq.com',
]
const companies = [
  'example',
  'north-wind',
  'acme',
  'contoso',
  'blue-sky-logistics',
  'initech',
  'city-hospital',
]
const suffixes = ['com', 'de', 'io', 'co.uk', 'com.br', 'org', 'software', 'co.jp']
const slips = [
  '',
  'nobody',
  'a@',
  '@example.com',
  'a b@gmail.com',
  'a@@gmail.com',
  'a@gmail..com',
  'a@gmail.com ',
]
const abroad = [
  'josé@example.com',
  'info@müller.example',
  '用户@例子.中国',
  'a@xn--mnchen-3ya.example',
  'почта@пример.рф',
]

/** Of a hundred: 5 mistyped, 3 international, and 92 plain, a quarter of them with a tag or in upper case. Plain ones need not differ. */
const typicalText = (random: () => number): string => {
  const kind = Math.floor(random() * 100)
  if (kind < 5) return pick(slips, random)
  if (kind < 8) return pick(abroad, random)
  const host = random() < 0.5 ? pick(hosts, random) : `${pick(companies, random)}.${pick(suffixes, random)}`
  const name = `${pick(given, random)}${pick(['.', '_', '', '-'], random)}${pick(family, random)}`
  const text = `${name}${Math.floor(random() * 1000)}${kind < 20 ? '+news' : ''}@${host}`
  // Flattened, as if parsed from a body: joining a concatenated string would be charged to its first reader.
  return Buffer.from(kind > 90 ? text.toUpperCase() : text).toString()
}

/** Without lone surrogates: validator.js throws on them. */
const nastyTexts: readonly string[] = [
  ...[
    '"a b"@example.com',
    '"a\\"b\\\\c"@example.com',
    '""@example.com',
    '"unclosed@example.com',
    '"a"b@example.com',
  ],
  ...['a@[192.0.2.1]', 'a@[IPv6:2001:db8::1]', 'a@[IPv6:1:2:3:4:5:6:7:8:9]', 'a@[300.1.1.1]', 'a@192.0.2.1'],
  ...[
    '.a@b.com',
    'a.@b.com',
    'a..b@c.com',
    'a@.b.com',
    'a@b..com',
    'a@b.com.',
    'a@-b.com',
    'a@b-.com',
    'a@b_c.com',
  ],
  ...[
    'a@ab--cd.com',
    'a@xn--0.com',
    'a@xn--ls8h.la',
    'a@xn--80ak6aa92e.com',
    'a@💩.la',
    'a@ｇｍａｉｌ.com',
    'a@b\u037E.com',
  ],
  ...['a\n@b.com', 'a@b.com\r\n', 'a\0@b.com', '\u0301a@b.com', 'a\u200Bb@c.com', 'a\u202Eb@c.com'],
  ...['a(c)@b.com', 'A <a@b.com>', 'a,b@c.com', 'a@b@c.com', 'a@b.com, c@d.com', "!#$%&'*+-/=?^_`{|}~@b.com"],
  ...[
    'δοκιμή@παράδειγμα.δοκιμή',
    'अजय@डाटा.भारत',
    'משתמש@עברית.example',
    'a@1א.example',
    '葉士豪@臺網中心.tw',
  ],
  ...[
    `${'l'.repeat(64)}@b.com`,
    `${'l'.repeat(65)}@b.com`,
    `a@${'d'.repeat(63)}.com`,
    `a@${'d'.repeat(64)}.com`,
  ],
  ...[
    `a@${'a.'.repeat(26)}!`,
    `a@${'b.'.repeat(126)}c`,
    `${'a.'.repeat(31)}a@b.com`,
    'a'.repeat(320),
    'a'.repeat(10_000),
  ],
]
