import type { EmailAddress } from '../../src/capabilities/email-validation/evidence.ts'
import { inspectLists } from '../../src/capabilities/email-validation/lists/inspect.ts'
import { vendoredDomains } from '../../src/capabilities/email-validation/lists/listed-domains.ts'
import { realDomains } from '../email-validation/did-you-mean-corpus.ts'
import { randomOf } from './random.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'

/**
 * Addresses in, list evidence out. A typical mix is what forms receive: mainly big providers, some businesses, a few
 * disposable domains. Businesses alone are the slow side: each asks the suffix list and is compared with providers.
 */

const addressesPerPass = 200_000
const warmUpPasses = 3
const lookupsPerSecondMin = 1_000_000
const bigProviders = [
  'gmail.com',
  'outlook.com',
  'hotmail.com',
  'yahoo.com',
  'icloud.com',
  'gmx.de',
  'mail.ru',
]

export const emailLists = async ({ rounds, begin, report }: BenchOptions): Promise<Row[]> => {
  const { raw, kindOf } = vendoredDomains()
  const random = randomOf(11)
  const anyOf = (domains: readonly string[]): string =>
    domains[Math.floor(random() * domains.length)] ?? 'acme.com'
  const disposable = [...raw.disposable].filter((domain) => kindOf(domain) === 'disposable')
  const kinds: readonly { title: string; next: () => string; least: number | null }[] = [
    {
      title: 'typical mix',
      next: () => {
        const share = random()
        if (share < 0.7) return anyOf(bigProviders)
        return share < 0.95 ? anyOf(realDomains) : anyOf(disposable)
      },
      least: lookupsPerSecondMin,
    },
    { title: 'providers', next: () => anyOf(bigProviders), least: lookupsPerSecondMin },
    { title: 'disposable', next: () => anyOf(disposable), least: null },
    { title: 'businesses', next: () => anyOf(realDomains), least: null },
  ]
  const rows: Row[] = []
  let kept = 0
  begin()
  for (const { title, next, least } of kinds) {
    const figures: number[] = []
    for (let round = 0; round < rounds + warmUpPasses; round++) {
      const addresses = Array.from({ length: addressesPerPass }, (_, at) => addressOf(`person.${at}`, next()))
      const startedAt = performance.now()
      for (const address of addresses) if (inspectLists(address).disposable) kept++
      const perSecond = addressesPerPass / ((performance.now() - startedAt) / 1_000)
      if (round >= warmUpPasses) figures.push(perSecond)
    }
    report(`email lists, ${title}: ${figures.map(Math.round)} /s (${kept})`)
    rows.push(figureRow(`email lists, ${title}`, median(figures), '/s', least === null ? null : { least }))
  }
  return rows
}

const addressOf = (localPart: string, domain: string): EmailAddress => ({
  normalized: `${localPart}@${domain}`,
  localPart,
  domain,
  asciiDomain: domain,
  smtputf8: false,
  quoted: false,
  domainLiteral: false,
})
