import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { slipsBetween, suggestionFor } from '../../src/capabilities/email-validation/lists/did-you-mean.ts'
import { readList, vendoredListFolder } from '../../src/capabilities/email-validation/lists/file.ts'
import { vendoredDomains } from '../../src/capabilities/email-validation/lists/listed-domains.ts'
import { siftLists } from '../../src/capabilities/email-validation/lists/sieve.ts'
import { randomCases } from '../support/exhaustive.ts'
import {
  formMistyped,
  foundLaterMistyped,
  foundMistyped,
  mistyped,
  realDomains,
} from './did-you-mean-corpus.ts'

const { curated, raw, kindOf } = vendoredDomains()
const suggestDomain = (domain: string) => suggestionFor(domain, kindOf)
const files = ['providers', 'relays', 'freeAdditions'] as const
const listed = [
  ...files.flatMap((name) => readList(vendoredListFolder, name)),
  ...siftLists(raw, curated).free.entries,
]
const rightOf = (pairs: typeof mistyped) => pairs.filter(([slip, meant]) => suggestDomain(slip) === meant)
const right = rightOf(mistyped)
const wrongOf = (pairs: typeof mistyped) =>
  pairs.filter(([slip, meant]) => ![meant, null].includes(suggestDomain(slip)))
const wrong = wrongOf(mistyped)
const falseOf = (domains: readonly string[]): string[] =>
  domains.filter((domain) => suggestDomain(domain) !== null)

describe('mistyped provider domains', () => {
  test(`at least 85 % of the gold set are corrected: ${right.length} of ${mistyped.length}`, () => {
    expect(new Set(mistyped.map(([slip]) => slip)).size).toBeGreaterThanOrEqual(200)
    expect(right.length / mistyped.length).toBeGreaterThanOrEqual(0.85)
  })

  test(`at least 88 % of those collected by others: ${rightOf(foundMistyped).length} of ${foundMistyped.length}`, () => {
    expect(foundMistyped.length).toBeGreaterThanOrEqual(300)
    expect(rightOf(foundMistyped).length / foundMistyped.length).toBeGreaterThanOrEqual(0.88)
  })

  test(`at least 85 % of those collected later: ${rightOf(foundLaterMistyped).length} of ${foundLaterMistyped.length}, and none wrong`, () => {
    expect(foundLaterMistyped.length).toBeGreaterThanOrEqual(200)
    expect(rightOf(foundLaterMistyped).length / foundLaterMistyped.length).toBeGreaterThanOrEqual(0.85)
    expect(wrongOf(foundLaterMistyped)).toEqual([])
  })

  test(`at least 80 % of the other typos in form validators: ${rightOf(formMistyped).length} of ${formMistyped.length}, and none wrong`, () => {
    expect(formMistyped.length).toBeGreaterThanOrEqual(200)
    expect(rightOf(formMistyped).length / formMistyped.length).toBeGreaterThanOrEqual(0.8)
    expect(wrongOf(formMistyped)).toEqual([])
  })

  test(`a domain that is not corrected gets no suggestion, not a wrong one: ${wrong.length} wrong`, () => {
    expect(wrong).toEqual([])
  })

  test(`at most 3 of ${realDomains.length + listed.length} real domains get a suggestion: ${falseOf([...realDomains, ...listed]).length}`, () => {
    expect(new Set([...realDomains, ...listed]).size).toBeGreaterThanOrEqual(1_000)
    expect(falseOf([...realDomains, ...listed]).length).toBeLessThanOrEqual(3)
  })

  test('for well-known organizations this is also true without any domain lists', () => {
    const found = realDomains.filter((domain) => suggestionFor(domain, () => undefined) !== null)
    expect(found.length).toBeLessThanOrEqual(3)
  })

  test.each([
    'gmail.com',
    'mail.gmail.com',
    'hotmail.cz',
    'wahoo.com',
    'grail.com',
    '[10.0.0.1]',
    'com',
    'localhost',
  ])('"%s" gets no suggestion', (domain) => {
    expect(suggestDomain(domain)).toBeNull()
  })

  test.each([
    ['gmail.com.com', 'gmail.com'],
    ['tahoo.com', 'yahoo.com'],
    ['yahoo.co', 'yahoo.com'],
    ['gmail', 'gmail.com'],
    ['yahoomail.co', 'yahoo.com'],
    ['yahho.com', 'yahoo.com'],
    ['hotmail.c', 'hotmail.com'],
    ['fre.fr', 'free.fr'],
    ['web.de.com', 'web.de'],
    ['yahoo.oc.in', 'yahoo.co.in'],
  ])('%s is a typo of %s', (slip, meant) => {
    expect(suggestDomain(slip)).toBe(meant)
  })

  test('a squatted typo on a disposable list still gets a suggestion', () => {
    expect(suggestDomain('gmial.com')).toBe('gmail.com')
  })

  test('a suggestion is never itself a typo, nor the same domain', () => {
    const names = fc.constantFrom(...mistyped.map(([slip]) => slip), ...listed.slice(0, 500))
    fc.assert(
      fc.property(names, fc.nat(20), fc.constantFrom('', 'a', 'x', '-', '.'), (name, at, put) => {
        const domain = name.slice(0, at) + put + name.slice(at + 1)
        const suggestion = suggestDomain(domain)
        if (suggestion === null) return
        expect(suggestion).not.toBe(domain)
        expect(suggestDomain(suggestion)).toBeNull()
      }),
      { numRuns: randomCases(500) },
    )
  })

  test('any text gets an answer', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 300, unit: 'binary' }), (text) => {
        const suggestion = suggestDomain(text)
        expect(suggestion === null || suggestion.length < 30).toBe(true)
      }),
    )
  })
})

describe('typos between two names', () => {
  test.each([
    ['gmail', 'gmail', 0],
    ['gmial', 'gmail', 1],
    ['gmal', 'gmail', 1],
    ['gmaill', 'gmail', 1],
    ['gnail', 'gmail', 1],
    ['hotmal', 'hotmial', 1],
    ['outlok', 'uotlook', 2],
    ['abc', 'xyz', 3],
    ['', 'ab', 2],
  ])('%s and %s: %i', (left, right, slips) => {
    expect(slipsBetween(left, right, 5)).toBe(slips)
  })

  test('the count is the same in both directions, and stops one above the limit', () => {
    const word = fc.stringMatching(/^[abc]{0,8}$/)
    fc.assert(
      fc.property(word, word, fc.integer({ min: 0, max: 4 }), (left, right, max) => {
        const full = slipsBetween(left, right, 20)
        expect(slipsBetween(right, left, 20)).toBe(full)
        expect(slipsBetween(left, right, max)).toBe(Math.min(full, max + 1))
      }),
      { numRuns: randomCases(500) },
    )
  })
})
