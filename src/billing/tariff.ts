import type { CallFacts } from '../events/calls.ts'
import type { MicroCredits } from './money.ts'
import type { PriceBook } from './price-book.ts'

/**
 * An organization's own price for a SKU from an instant on. If the price is null, the price book applies again from then on. `revision` is
 * the revision of the event that set the price.
 */
export type PriceOverrideEntry = {
  readonly revision: number
  readonly amount: MicroCredits | null
  readonly fromMs: number
}

/**
 * Adds an override to those of one SKU, which are sorted, oldest first. If two apply from the same instant, the one that was set last counts.
 */
export const withOverride = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  entry: Entry,
): Entry[] => [...(overrides ?? []), entry].sort((a, b) => a.fromMs - b.fromMs)

/** Removes the override that was set by the event at a revision. */
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
 * past calls. To change a rule, add a version here, and publish a price book that uses this version from some date on.
 */

type Facts<K extends CallFacts['kind']> = Extract<CallFacts, { kind: K }>

/** A rule for a kind of fact. Rules are in the order of a charge's lines, and every fact must match at least one. */
type Rule<K extends CallFacts['kind']> = {
  readonly id: string
  /** `versions[n - 1]` is version n. */
  readonly versions: readonly RuleVersion<K>[]
  /** The price in credits in the price book of a new installation. Null: the rule makes calls free. */
  readonly startPrice: { readonly sku: string; readonly amount: string } | null
  /** The rule is free, and applies even if a price book does not contain it. Price books can be older than the rule. */
  readonly unnamed?: true
}

type RuleVersion<K extends CallFacts['kind']> = {
  readonly applies: (facts: Facts<K>) => boolean
  /** The reason shown on bills. Unlike `applies`, this text can be changed after a release. */
  readonly because: string
}

const freeUnnamed = { ruleVersion: 1, sku: null, amount: 0n } as const

type Tariff = { readonly [K in CallFacts['kind']]: readonly Rule<K>[] }

/** Company data is charged only if the verdict is certain, and never for a disposable address (decision 10). */
const isCertainEnough = ({ status, sub_status }: Facts<'email_validation'>): boolean =>
  status === 'valid' || (status === 'risky' && sub_status !== 'disposable')

/** A rule for a kind of fact that is always free. */
const free = (id: string, because: string) =>
  ({ id, versions: [{ applies: () => true, because }], startPrice: null }) as const

/** The most decisive rule comes first. */
export const tariff: Tariff = {
  // Spec §4.1, decisions 9 and 10. For rule 4 of the specification (company not found: no additional charge), the company rule does not match.
  // Rule 5 of the specification (rate-limited) is the rule `refusal` below.
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
          // A partner that repeats a call about an unknown address must not pay for the company each time.
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
  // An IP lookup is charged if the address was located (decision 11).
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
  // A profile is charged if its data is delivered. A deleted profile costs nothing (decision 11).
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
  // Pixel controls and whoami are free (decision 11).
  pixel: [free('pixel', 'the pixel controls cost nothing')],
  whoami: [free('whoami', 'whoami costs nothing')],
  // Partners can always read their own account and ledger for free, under every price book.
  account: [{ ...free('account', 'reading your own account costs nothing'), unnamed: true }],
  ledger_export: [{ ...free('ledger_export', 'exporting your own ledger costs nothing'), unnamed: true }],
  // Calls with the same Idempotency-Key are charged only once (decision 15).
  replay: [free('replay', 'the answer to an earlier call was repeated, which costs nothing')],
  // Refused calls are free (Spec §4.1 rule 5, decision 11).
  refusal: [free('refusal', 'a call that is refused or fails costs nothing')],
}

/** One line of a charge, before lots are drawn. */
type RatedLine = {
  readonly sku: string
  readonly amount: MicroCredits
  readonly rule: string
  readonly ruleVersion: number
}

/** The cost of a fact, and the rules that priced it. If there are no lines, `rule` made it free. */
export type Rating = {
  readonly total: MicroCredits
  readonly lines: readonly RatedLine[]
  readonly rule: string
  readonly ruleVersion: number
  readonly priceBookVersion: number
}

/** An organization's own price for a SKU at the time of the call; undefined if the price book applies. */
export type PriceOverride = (sku: string) => MicroCredits | undefined

/** The price book does not match the tariff of this release. The call is not charged, and an operator must publish another book or upgrade. */
export class NoRule extends Error {
  override name = 'NoRule'
}

/** Prices a fact. The result depends only on the arguments. Throws `NoRule` if the book contains no matching rule that this release has. */
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

/** Whether a price book has a rule for a kind of fact. Without one, calls with such facts cannot be rated. */
export const isPriced = (book: PriceBook, kind: CallFacts['kind']): boolean =>
  tariff[kind].some(({ id, unnamed }) => unnamed === true || book.rules.has(id))

/** The rules that a price book must contain so that every kind of call can be rated. */
export const neededRules = (): readonly string[] =>
  Object.values(tariff).flatMap((rules: readonly { id: string; unnamed?: true }[]) =>
    rules.flatMap(({ id, unnamed }) => (unnamed === true ? [] : [id])),
  )

/** The rules of this release that a price book can contain, with their newest versions. */
export const knownRules = (): ReadonlyMap<string, number> =>
  new Map(
    Object.values(tariff).flatMap((rules) => rules.map((rule) => [rule.id, rule.versions.length] as const)),
  )

/** The reason why a rule applied, as text. Empty if this release does not have the rule or version. */
export const becauseOf = (rule: string, version: number): string =>
  Object.values(tariff)
    .flat()
    .find(({ id }) => id === rule)?.versions[version - 1]?.because ?? ''
