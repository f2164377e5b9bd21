import type { CallFacts } from '../events/calls.ts'
import type { MicroCredits } from './money.ts'
import type { PriceBook } from './price-book.ts'

/**
 * An organization's own price for a SKU, starting at an instant. If the price is null, the price book applies again. `revision` is the
 * revision of the event that set the price.
 */
export type PriceOverrideEntry = {
  readonly revision: number
  readonly amount: MicroCredits | null
  readonly fromMs: number
}

/**
 * Adds an override to those of one SKU, which are oldest first. If several apply from the same instant, the one that was set last counts.
 */
export const withOverride = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  entry: Entry,
): Entry[] => [...(overrides ?? []), entry].sort((a, b) => a.fromMs - b.fromMs)

/** Removes the override that the event at a revision set. */
export const withoutOverride = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  revision: number,
): Entry[] => (overrides ?? []).filter((entry) => entry.revision !== revision)

/** The override in force at an instant; undefined if the price book applies. */
export const overrideAt = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  atMs: number,
): Entry | undefined => {
  const last = overrides?.findLast(({ fromMs }) => fromMs <= atMs)
  return last === undefined || last.amount === null ? undefined : last
}

/**
 * The tariff decides which rules apply to a fact. The price book contains the prices, and the account decides whether
 * there are enough credits.
 *
 * Every rule is a pure function with an id and a version. A released version is never edited, because it has priced
 * past calls. To change a rule, add a version here, and publish a price book that names it from a date on.
 */

type Facts<K extends CallFacts['kind']> = Extract<CallFacts, { kind: K }>

/** The rules for a kind of fact, in the order of the charge's lines. Every fact must match at least one rule. */
type Rule<K extends CallFacts['kind']> = {
  readonly id: string
  /** `versions[n - 1]` is version n. */
  readonly versions: readonly RuleVersion<K>[]
  /** The price in credits in the price book of a new installation. Null: the rule makes calls free. */
  readonly startPrice: { readonly sku: string; readonly amount: string } | null
  /** Applies in version 1, free of charge, even to price books that do not name it, because they are older than the rule. */
  readonly unnamed?: true
}

type RuleVersion<K extends CallFacts['kind']> = {
  readonly applies: (facts: Facts<K>) => boolean
  /** Why the rule applied, for people who read a bill. This text can be changed after a release, unlike `applies`. */
  readonly because: string
}

const freeUnnamed = { ruleVersion: 1, sku: null, amount: 0n } as const

type Tariff = { readonly [K in CallFacts['kind']]: readonly Rule<K>[] }

/** Decision 10: company data is charged only if the verdict is certain, and never for a disposable address. */
const isCertainEnough = ({ status, sub_status }: Facts<'email_validation'>): boolean =>
  status === 'valid' || (status === 'risky' && sub_status !== 'disposable')

/** A rule for a kind of fact that is always free. */
const free = (id: string, because: string) =>
  ({ id, versions: [{ applies: () => true, because }], startPrice: null }) as const

/** The most decisive rule comes first. */
export const tariff: Tariff = {
  // Spec §4.1, decisions 9 and 10. Under rule 4 of the specification (requested, not found: no additional charge), the company rule does
  // not match. Rule 5 of the specification (rate-limited) is `refusal`.
  email_validation: [
    {
      id: 'email_validation.valid',
      versions: [{ applies: ({ status }) => status === 'valid', because: 'the address is valid' }],
      startPrice: { sku: 'email_validation', amount: '1' },
    },
    {
      id: 'email_validation.company_found',
      versions: [
        {
          applies: (facts) => facts.company_status === 'found',
          because: 'company data was requested and found',
        },
        {
          // Otherwise, partners who ask again about unknown addresses would pay for the company each time.
          applies: (facts) => facts.company_status === 'found' && isCertainEnough(facts),
          because: 'company data was requested and found, for an address that is valid or risky',
        },
      ],
      startPrice: { sku: 'company_data', amount: '2' },
    },
    {
      id: 'email_validation.invalid',
      versions: [
        { applies: ({ status }) => status === 'invalid', because: 'an invalid address costs nothing' },
      ],
      startPrice: null,
    },
    {
      id: 'email_validation.risky',
      versions: [{ applies: ({ status }) => status === 'risky', because: 'a risky address costs nothing' }],
      startPrice: null,
    },
    {
      id: 'email_validation.unknown',
      versions: [
        {
          applies: ({ status }) => status === 'unknown',
          because: 'an address that could not be judged costs nothing',
        },
      ],
      startPrice: null,
    },
  ],
  // Decision 11: an IP lookup is charged if the address was located.
  ip_lookup: [
    {
      id: 'ip_lookup.located',
      versions: [{ applies: ({ success }) => success, because: 'the address was located' }],
      startPrice: { sku: 'ip_lookup', amount: '1' },
    },
    {
      id: 'ip_lookup.not_located',
      versions: [
        { applies: ({ success }) => !success, because: 'an address that is not located costs nothing' },
      ],
      startPrice: null,
    },
  ],
  // Decision 11: a profile is charged if its data is delivered. A person who no longer exists costs nothing.
  profile: [
    {
      id: 'profile.cached',
      versions: [
        {
          applies: ({ source }) => source === 'cached',
          because: 'profile data that is up to 30 days old was delivered',
        },
      ],
      startPrice: { sku: 'profile_cached', amount: '2' },
    },
    {
      id: 'profile.fresh',
      versions: [
        {
          applies: ({ source }) => source === 'fresh',
          because: 'profile data that is at most a minute old was delivered',
        },
      ],
      startPrice: { sku: 'profile_fresh', amount: '5' },
    },
    {
      id: 'profile.deleted',
      versions: [
        { applies: ({ source }) => source === 'deleted', because: 'a deleted profile costs nothing' },
      ],
      startPrice: null,
    },
  ],
  // Decision 11: pixel controls and whoami are free.
  pixel: [free('pixel', 'the pixel controls cost nothing')],
  whoami: [free('whoami', 'whoami costs nothing')],
  // Reading one's own account and ledger is free under every price book.
  account: [{ ...free('account', 'reading your own account costs nothing'), unnamed: true }],
  ledger_export: [{ ...free('ledger_export', 'exporting your own ledger costs nothing'), unnamed: true }],
  // Decision 15: an Idempotency-Key is charged only once, ever.
  replay: [free('replay', 'the answer to an earlier call was repeated, which costs nothing')],
  // Spec §4.1 rule 5, decision 11: refused calls are free.
  refusal: [free('refusal', 'a call that is refused or fails costs nothing')],
}

/** One line of a charge, before it is paid. */
type RatedLine = {
  readonly sku: string
  readonly amount: MicroCredits
  readonly rule: string
  readonly ruleVersion: number
}

/** The cost of a fact, and the rules behind it. No lines and a `total` of 0 mean that `rule` made it free. */
export type Rating = {
  readonly total: MicroCredits
  readonly lines: readonly RatedLine[]
  readonly rule: string
  readonly ruleVersion: number
  readonly priceBookVersion: number
}

/** An organization's own price for a SKU at the time of the call; undefined if the price book applies. */
export type PriceOverride = (sku: string) => MicroCredits | undefined

/** The price book does not match the tariff of this release. The call is not charged, and an operator must act. */
export class NoRule extends Error {
  override name = 'NoRule'
}

/** Prices a fact. The same fact, book and overrides always have the same rating. Throws `NoRule` if the book has no rule of this release that matches. */
export const rate = (facts: CallFacts, book: PriceBook, override: PriceOverride): Rating => {
  const lines: RatedLine[] = []
  let first: { rule: string; ruleVersion: number } | undefined
  let total = 0n
  for (const { id, versions, unnamed } of tariff[facts.kind] as readonly Rule<CallFacts['kind']>[]) {
    const priced = book.rules.get(id) ?? (unnamed === true ? freeUnnamed : undefined)
    if (priced === undefined) continue
    const version = versions[priced.ruleVersion - 1] as RuleVersion<CallFacts['kind']> | undefined
    if (version === undefined)
      throw new NoRule(
        `price book ${book.version} names ${id} version ${priced.ruleVersion}, which this release does not have`,
      )
    if (!version.applies(facts)) continue
    first ??= { rule: id, ruleVersion: priced.ruleVersion }
    if (priced.sku === null) continue
    const amount = override(priced.sku) ?? priced.amount
    if (amount === 0n) continue
    total += amount
    lines.push({ sku: priced.sku, amount, rule: id, ruleVersion: priced.ruleVersion })
  }
  if (first === undefined) throw new NoRule(`price book ${book.version} has no rule for ${facts.kind} facts`)
  return { total, lines, ...first, priceBookVersion: book.version }
}

/** Whether a price book has a rule for a kind of fact. If not, calls with such facts cannot be rated. */
export const isPriced = (book: PriceBook, kind: CallFacts['kind']): boolean =>
  tariff[kind].some(({ id, unnamed }) => unnamed === true || book.rules.has(id))

/** The rules that a price book needs for rating calls of every kind. */
export const neededRules = (): readonly string[] =>
  Object.values(tariff).flatMap((rules: readonly { id: string; unnamed?: true }[]) =>
    rules.flatMap(({ id, unnamed }) => (unnamed === true ? [] : [id])),
  )

/** The rules of this release that a price book can name, with their newest versions. */
export const knownRules = (): ReadonlyMap<string, number> =>
  new Map(
    Object.values(tariff).flatMap((rules) => rules.map((rule) => [rule.id, rule.versions.length] as const)),
  )

/** Why a rule applied, in words. Empty for a rule or a version of another release. */
export const becauseOf = (rule: string, version: number): string =>
  Object.values(tariff)
    .flat()
    .find(({ id }) => id === rule)?.versions[version - 1]?.because ?? ''
