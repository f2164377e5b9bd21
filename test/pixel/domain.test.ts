/** Valid domains in a rule, their spelling, and the hosts they cover. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { coveringDomains, parseDomain, parseHost } from '../../src/capabilities/pixel/domain.ts'
import { randomCases } from '../support/exhaustive.ts'

const long = `${'a'.repeat(49)}.`.repeat(5)

describe('a domain', () => {
  test.each([
    ['example.com', 'example.com'],
    ['example.com.', 'example.com'],
    ['a.b.c.example.co.uk', 'a.b.c.example.co.uk'],
    ['bücher.de', 'xn--bcher-kva.de'],
    ['xn--bcher-kva.de', 'xn--bcher-kva.de'],
    ['faß.de', 'xn--fa-hia.de'],
    ['例え.jp', 'xn--r8jz45g.jp'],
    ['example。com', 'example.com'],
    ['ｅｘａｍｐｌｅ.com', 'example.com'],
    ['somebody.github.io', 'somebody.github.io'],
    ['1.com', '1.com'],
    ['127.0.0.1.example.com', '127.0.0.1.example.com'],
    ['a--b.example.com', 'a--b.example.com'],
    ['www.ck', 'www.ck'],
    [`${long}com`, `${long}com`],
    [`${'a'.repeat(63)}.com`, `${'a'.repeat(63)}.com`],
  ])('%s is %s', (text, domain) => expect(parseDomain(text)).toBe(domain))

  test.each([
    ['nothing', ''],
    ['one label', 'localhost'],
    ['a top-level domain', 'com'],
    ['an unknown top-level domain', 'example.invalidtld'],
    ['a public suffix', 'co.uk'],
    ["a hosting provider's suffix", 'github.io'],
    ['a scheme', 'https://example.com'],
    ['a wildcard', '*.example.com'],
    ['an underscore', 'a_b.example.com'],
    ['a percent code', 'exam%70le.com'],
    ['space around', ' example.com '],
    ['a NUL', 'example.com\0'],
    ['two dots at the end', 'example.com..'],
    ['a hyphen at the start', '-a.com'],
    ['a label of 64 characters', `${'a'.repeat(64)}.com`],
    ['254 characters', `a${long}com`.padStart(254, 'a')],
    ['an IPv4 address', '81.2.69.142'],
    ['an IPv6 address', '2a02:c7c::1'],
    ['invalid Punycode', 'xn--iñvalid.com'],
    ['half a character', 'a\ud800.com'],
    ['a megabyte', 'a.'.repeat(500_000)],
  ])('%s is not a valid domain', (_, text) => expect(parseDomain(text)).toBeNull())

  test('has one spelling: parsing the result again does not change it', () => {
    fc.assert(
      fc.property(fc.oneof(fc.domain(), fc.string({ unit: 'binary' }), fc.webAuthority()), (text) => {
        const domain = parseDomain(text)
        if (domain !== null) {
          expect(parseDomain(domain)).toBe(domain)
          expect(parseDomain(`${domain.toUpperCase()}.`)).toBe(domain)
          expect(domain).toMatch(/^[a-z0-9-]+(\.[a-z0-9-]+)+$/)
          expect(domain.length).toBeLessThanOrEqual(253)
        }
      }),
      { numRuns: randomCases(1_000) },
    )
  })

  test('of a URL with that host is the same', () => {
    fc.assert(
      fc.property(fc.domain(), (domain) => {
        if (parseDomain(domain) !== null) expect(parseHost(`https://${domain}/x`)).toBe(parseDomain(domain))
      }),
      { numRuns: randomCases(1_000) },
    )
  })
})

describe('the host of a URL', () => {
  test.each([
    ['https://example.com', 'example.com'],
    ['http://EXAMPLE.com:8080/a/b?c#d', 'example.com'],
    ['HTTPS://example.com./x', 'example.com'],
    ['https://bücher.de/', 'xn--bcher-kva.de'],
    ['https://user:secret@example.com/', 'example.com'],
    ['https://example.com@badexample.com/', 'badexample.com'],
    ['https://badexample.com/@example.com', 'badexample.com'],
    ['https://badexample.com\\@example.com', 'badexample.com'],
    ['https://badexample.com#@example.com', 'badexample.com'],
    ['https://exam%70le.com/', 'example.com'],
    ['https://a_b.example.com/', 'a_b.example.com'],
    ['https://localhost/', 'localhost'],
    ['https://81.2.69.142/', '81.2.69.142'],
    ['https://0x7f.1/', '127.0.0.1'],
    ['https://[2A02:c7c::1]/', '[2a02:c7c::1]'],
  ])('%s is %s', (url, host) => expect(parseHost(url)).toBe(host))

  test.each([
    '',
    'example.com',
    '//example.com/',
    'http:/example.com',
    'http://',
    'ftp://example.com/',
    'javascript:alert(1)',
    ' https://example.com/',
    'https://exa mple.com/',
    'https://example.com:99999/',
    'https://1.2.3.256/',
    `https://${'a.'.repeat(150)}example.com/`,
    `https://example.com/${'x'.repeat(8_192)}`,
  ])('%s has no host', (url) => expect(parseHost(url)).toBeNull())
})

test('a host is covered by itself and the domains above it, nearest first, on label boundaries', () => {
  expect(coveringDomains('a.b.example.com')).toEqual([
    'a.b.example.com',
    'b.example.com',
    'example.com',
    'com',
  ])
  expect(coveringDomains('localhost')).toEqual(['localhost'])
  expect(coveringDomains('badexample.com')).not.toContain('example.com')
})
