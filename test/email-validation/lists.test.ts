import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { getDomain } from 'tldts'
import { describe, expect, test } from 'vitest'
import { type EmailAddress, isBusinessDomain } from '../../src/capabilities/email-validation/evidence.ts'
import {
  type ListName,
  listFileNames,
  readList,
  vendoredListFolder,
} from '../../src/capabilities/email-validation/lists/file.ts'
import { inspectLists, isDisposableExchange } from '../../src/capabilities/email-validation/lists/inspect.ts'
import { vendoredDomains } from '../../src/capabilities/email-validation/lists/listed-domains.ts'
import { disposableLists } from '../../src/capabilities/email-validation/lists/packages.ts'
import { isRoleName } from '../../src/capabilities/email-validation/lists/roles.ts'
import { siftLists } from '../../src/capabilities/email-validation/lists/sieve.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { realDomains } from './did-you-mean-corpus.ts'
import { knownDomains } from './known-domains.ts'

const addressOf = (text: string): EmailAddress => {
  const at = text.lastIndexOf('@')
  const localPart = text.slice(0, at)
  const domain = text.slice(at + 1)
  return {
    normalized: text,
    localPart,
    domain,
    asciiDomain: domain,
    smtputf8: false,
    quoted: localPart.startsWith('"'),
    domainLiteral: domain.startsWith('['),
  }
}
const inspect = (text: string) => inspectLists(addressOf(text))
const entries = (name: ListName): string[] => readList(vendoredListFolder, name)
const { curated, raw, kindOf } = vendoredDomains()
const believed = siftLists(raw, curated)

describe('findings about an address', () => {
  test('an address with every finding gets all of them', () => {
    expect(inspect('Sales+spring@gmail.com')).toEqual({
      disposable: false,
      roleBased: true,
      freeProvider: true,
      privacyRelay: false,
      subaddress: 'spring',
      didYouMean: null,
      registrableDomain: 'gmail.com',
      routable: true,
    })
  })

  test('for a mistyped provider the suggestion is the whole address, with the same local part', () => {
    expect(inspect('Ada.Byron+x@gmial.com').didYouMean).toBe('Ada.Byron+x@gmail.com')
    expect(inspect('"a@b c"@hotmail.con').didYouMean).toBe('"a@b c"@hotmail.com')
  })

  test('a domain literal has no domain to look up', () => {
    expect(inspect('ada@[192.0.2.1]')).toMatchObject({
      routable: false,
      registrableDomain: null,
      didYouMean: null,
      disposable: false,
    })
  })
})

describe('disposable domains', () => {
  test.each(['mailinator.com', 'guerrillamail.com', 'yopmail.com', '10minutemail.com', 'sharklasers.com'])(
    '%s is disposable',
    (domain) => {
      expect(inspect(`a@${domain}`)).toMatchObject({ disposable: true, freeProvider: false })
    },
  )

  test('every subdomain of a disposable domain is disposable', () => {
    const labels = fc.array(fc.stringMatching(/^[a-z0-9]{1,12}$/), { minLength: 1, maxLength: 4 })
    fc.assert(
      fc.property(labels, fc.nat(believed.disposable.entries.length - 1), (below, at) => {
        const domain = believed.disposable.entries[at]
        expect(inspect(`a@${below.join('.')}.${domain}`).disposable).toBe(true)
      }),
    )
  })

  test('a parent matches only at a dot', () => {
    expect(inspect('a@acmeyopmail.com').disposable).toBe(false)
    expect(inspect('a@mailinator.com.acme.com').disposable).toBe(false)
  })

  test('no list contains a public suffix, not even a private one: all its customers would match', () => {
    const isSuffix = (domain: string) => getDomain(domain, { allowPrivateDomains: true }) === null
    const files = (Object.keys(listFileNames) as ListName[]).flatMap(entries)
    expect(files.filter(isSuffix)).toEqual([])
    const named = [...raw.disposable, ...raw.free].filter(isSuffix)
    expect(named).toContain('ddns.net')
    expect(named.filter((domain) => kindOf(domain) !== undefined)).toEqual([])
  })

  test(`none of ${entries('providers').length} providers and ${entries('relays').length} relays is disposable`, () => {
    const allowed = [...entries('providers'), ...entries('relays')]
    expect(allowed.length).toBeGreaterThanOrEqual(250)
    const listed = new Set(believed.disposable.entries)
    expect(allowed.filter((domain) => listed.has(domain))).toEqual([])
    expect(allowed.filter((domain) => inspect(`a@${domain}`).disposable)).toEqual([])
  })

  test(`none of ${realDomains.length + knownDomains.length} providers and companies is disposable`, () => {
    expect(knownDomains.length).toBeGreaterThanOrEqual(300)
    const flagged = [...realDomains, ...knownDomains].filter((domain) => inspect(`a@${domain}`).disposable)
    expect(flagged).toEqual([])
  })

  test.each(['gail.com', 'skye.com', '123.com', 'craigslist.org', 'jp.com'])(
    '%s is not a disposable service, even if other lists include it',
    (domain) => {
      expect(raw.disposable.has(domain)).toBe(true)
      expect(inspect(`a@${domain}`)).toMatchObject({ disposable: false, didYouMean: null })
    },
  )

  test('a name of up to three characters under .com is disposable only if a curated list includes it', () => {
    const byHand = new Set(disposableLists['disposable-email-domains-js']?.() ?? [])
    const short = [...raw.disposable].filter((domain) => /^[a-z0-9]{1,3}\.com$/.test(domain))
    const disposable = short.filter((domain) => kindOf(domain) === 'disposable')
    expect(disposable.filter((domain) => !byHand.has(domain))).toEqual([])
    expect(short.filter((domain) => byHand.has(domain)).sort()).toEqual(disposable.sort())
    expect(short.length).toBeGreaterThan(100)
  })
})

describe('disposable exchangers', () => {
  test.each([
    'mail.wallywatts.com',
    'generator.email',
    'mail.mailinator.com',
    'mail2.mailinator.com.',
    'MX.YOPMAIL.COM',
    'mailinator.com',
  ])('%s is disposable', (exchange) => {
    expect(isDisposableExchange(exchange)).toBe(true)
  })

  test.each(['aspmx.l.google.com', 'mx.notmailinator.com', 'com', '', '.', 'mailinator.com.example.net'])(
    '"%s" is not disposable',
    (exchange) => {
      expect(isDisposableExchange(exchange)).toBe(false)
    },
  )
})

describe('free providers and relays', () => {
  test.each(
    (
      'gmail.com googlemail.com outlook.com hotmail.co.uk live.nl msn.com yahoo.com yahoo.co.jp gmx.de web.de mail.ru ' +
      'yandex.ru qq.com 163.com 126.com sina.com proton.me protonmail.com zoho.com icloud.com me.com aol.com orange.fr ' +
      'free.fr libero.it t-online.de naver.com seznam.cz wp.pl uol.com.br comcast.net bigpond.com fastmail.com'
    ).split(' '),
  )('%s is free and not a business', (domain) => {
    const evidence = inspect(`ada@${domain}`)
    expect(evidence).toMatchObject({ freeProvider: true, privacyRelay: false, disposable: false })
    expect(isBusinessDomain(evidence)).toBe(false)
  })

  test.each(['duck.com', 'mozmail.com', 'privaterelay.appleid.com', 'simplelogin.com', 'me.anonaddy.com'])(
    '%s is a relay, neither free nor disposable, and not a business',
    (domain) => {
      const evidence = inspect(`ada@${domain}`)
      expect(evidence).toMatchObject({ privacyRelay: true, freeProvider: false, disposable: false })
      expect(isBusinessDomain(evidence)).toBe(false)
    },
  )

  test('well-known organizations are businesses', () => {
    const providers = new Set(entries('providers'))
    const wrong = realDomains.filter(
      (domain) => !providers.has(domain) && !isBusinessDomain(inspect(`ada@${domain}`)),
    )
    expect(wrong).toEqual([])
  })
})

describe('roles', () => {
  test.each([
    'info',
    'no_reply',
    'sales+eu',
    'contas.a.pagar',
    'sales-eu',
    'datenschutzbeauftragter',
    'ügyfélszolgálat',
  ])('%s is a role', (localPart) => {
    expect(inspect(`${localPart}@acme.com`).roleBased).toBe(true)
  })

  test.each(['test', 'information.desk.of.somebody.very.long', 'salesman', 'dean', 'sales.smith', 'ana'])(
    '"%s" is not a role',
    (localPart) => {
      expect(isRoleName(localPart)).toBe(false)
    },
  )
})

describe('subaddresses', () => {
  test.each([
    ['a+b@gmail.com', 'b'],
    ['a+b+c@outlook.fr', 'b+c'],
    ['a+b@icloud.com', 'b'],
    ['a+b@proton.me', 'b'],
    ['a+b@zoho.eu', 'b'],
    ['a+b@fastmail.com', 'b'],
  ])('%s has the tag %s', (text, tag) => {
    expect(inspect(text).subaddress).toBe(tag)
  })

  test.each([
    'a+b@acme.com',
    'a-b@yahoo.com',
    'a+b@yahoo.com',
    'a@gmail.com',
    '+b@gmail.com',
    'a+@gmail.com',
    '"a+b"@gmail.com',
    'a+b@live.example-host.com',
  ])('%s has no tag', (text) => {
    expect(inspect(text).subaddress).toBeNull()
  })
})

describe('registrable and routable domains', () => {
  test.each([
    ['mail.acme.co.uk', 'acme.co.uk'],
    ['acme.uk.com', 'acme.uk.com'],
    ['uk.com', 'uk.com'],
    ['ada.github.io', 'ada.github.io'],
    ['mail.mailinator.com', 'mailinator.com'],
    ['xn--bcher-kva.example-shop.de', 'example-shop.de'],
    ['co.uk', null],
    ['com', null],
  ])('the registrable domain of %s is %s', (domain, registrable) => {
    expect(inspect(`a@${domain}`).registrableDomain).toBe(registrable)
  })

  test('answers given without the suffix list agree with the suffix list', () => {
    const domains = [...realDomains, ...believed.free.entries, ...believed.disposable.entries.slice(0, 5_000)]
    const wrong = domains.filter((domain) => {
      const expected = getDomain(domain, { allowPrivateDomains: true }) ?? getDomain(domain)
      return inspect(`a@${domain}`).registrableDomain !== expected
    })
    expect(wrong).toEqual([])
    const flat = ['com', 'net', 'org', 'de', 'nl', 'ch', 'eu']
    const seconds = ['co', 'com', 'net', 'org', 'gov', 'gv', 'edu', 'ac', 'uk', 'us', 'zz']
    for (const top of flat)
      for (const second of seconds) expect(getDomain(`a.${second}.${top}`)).toBe(`${second}.${top}`)
  })

  test.each(
    (
      'localhost acme.localhost acme.test acme.example acme.invalid printer.local x.onion x.alt db.internal ' +
      'host.home.arpa 1.2.3.4 [127.0.0.1] com mail'
    ).split(' '),
  )('%s is neither routable nor a business', (domain) => {
    const evidence = inspect(`a@${domain}`)
    expect(evidence).toMatchObject({ routable: false, registrableDomain: null })
    expect(isBusinessDomain(evidence)).toBe(false)
  })

  test.each([
    'example.com',
    'example.org',
    'acme.com',
    'test.de',
    'local.ch',
    'internal.acme.com',
    'acme.corp',
  ])('%s is left to the DNS', (domain) => {
    expect(inspect(`a@${domain}`).routable).toBe(true)
  })
})

describe('the list files', () => {
  test.each(Object.keys(listFileNames) as ListName[])(
    '%s: ASCII, lower case, sorted, no duplicates',
    (name) => {
      const list = entries(name)
      expect(list.length).toBeGreaterThan(20)
      expect(list.filter((domain) => !/^[a-z0-9-]+(\.[a-z0-9-]+)+$/.test(domain))).toEqual([])
      expect(list).toEqual([...new Set(list)].sort())
    },
  )

  test('a domain is in only one curated list', () => {
    const curatedNames = ['providers', 'relays', 'businesses', 'freeAdditions'] as const
    const named = curatedNames.flatMap(entries)
    expect(named.filter((domain, at) => named.indexOf(domain) !== at)).toEqual([])
  })
})

describe("the packages' lists", () => {
  test('are long, and we trust as many entries as before', () => {
    expect(raw.disposable.size).toBeGreaterThan(180_000)
    expect(believed.disposable.entries.length).toBeGreaterThan(150_000)
    expect(raw.free.size).toBeGreaterThan(8_000)
    expect(believed.free.entries.length).toBeGreaterThan(1_700)
  })

  test('give the same result judged one by one or all together', { skip: !exhaustive }, () => {
    expect(believed.disposable.entries.filter((domain) => kindOf(domain) !== 'disposable')).toEqual([])
    const listed = new Set(believed.disposable.entries)
    const below = [...raw.disposable].filter(
      (domain) => kindOf(domain) === 'disposable' && !listed.has(domain),
    )
    const parents = below.map((domain) => domain.slice(domain.indexOf('.') + 1))
    expect(parents.filter((parent) => !inspect(`a@${parent}`).disposable)).toEqual([])
    const additions = new Set(entries('freeAdditions'))
    const free = [...raw.free].filter((domain) => kindOf(domain) === 'free' && !additions.has(domain))
    expect(free.sort()).toEqual(believed.free.entries)
  })

  test('contain shops, schools, mailers and typos that we do not trust', () => {
    const mistaken = ['starbucks.com', 'valuemailers.com', 'worldmailer.com', 'nus.edu.sg']
    expect(mistaken.filter((domain) => kindOf(domain) === 'free' || kindOf(domain) === 'disposable')).toEqual(
      [],
    )
  })

  test('have the licences listed in provenance.md', () => {
    const provenance = readFileSync(`${vendoredListFolder}provenance.md`, 'utf8')
    for (const [name, licence] of [
      ['mailchecker', 'MIT'],
      ['disposable-email-domains-js', 'CC0-1.0'],
      ['disposable-domains', 'MIT'],
      ['@dahoom/disposable-email', 'MIT'],
      ['fakefilter', 'BSD-3-Clause'],
      ['email-providers', 'ISC'],
    ] as const) {
      const text = readFileSync(new URL(`../../node_modules/${name}/package.json`, import.meta.url), 'utf8')
      const installed = JSON.parse(text) as { version: string; license: string }
      expect(installed.license).toBe(licence)
      expect(provenance).toContain(`\`${name}\` | ${installed.version} | ${licence}`)
    }
  })
})
