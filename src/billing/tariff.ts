import type { CallFacts } from '../events/calls.ts'
import type { MicroCredits } from './money.ts'
import type { PriceBook } from './price-book.ts'

/** An organization's own price of a SKU from an instant on; null returns to the price book. `revision` is its event's. */
export type PriceOverrideEntry = {
  readonly revision: number
  readonly amount: MicroCredits | null
  readonly fromMs: number
}

/** Overrides of one SKU, oldest first, with one more. Among those from the same instant, the last one set counts. */
export const withOverride = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  entry: Entry,
): Entry[] => [...(overrides ?? []), entry].sort((a, b) => a.fromMs - b.fromMs)

/** Without the override that the event at a revision set. */
export const withoutOverride = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  revision: number,
): Entry[] => (overrides ?? []).filter((entry) => entry.revision !== revision)

/** The override in force at an instant; undefined: the price book's price. */
export const overrideAt = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  atMs: number,
): Entry | undefined => {
  const last = overrides?.findLast(({ fromMs }) => fromMs <= atMs)
  return last === undefined || last.amount === null ? undefined : last
}

/**
 * The tariff: the rules that apply to a fact. The price book defines the prices. The account decides whether there are
 * credits to pay.
 *
 * Every rule is a pure event handler with an id and a version. A released version is never edited, because past calls were
 * priced by it. To change a rule, add a version here and publish a price book that names it from a date on.
 */

type Facts<K extends CallFacts['kind']> = Extract<CallFacts, { kind: K }>

/** The rules that apply to a fact, in the order of the charge's lines. A fact that matches none is a bug. */
type Rule<K extends CallFacts['kind']> = {
  readonly id: string
  /** `versions[n - 1]` is version n. */
  readonly versions: readonly RuleVersion<K>[]
  /** In credits, in the price book that a new installation starts with. Null: free there. */
  readonly startPrice: { readonly sku: string; readonly amount: string } | null
  /** Applies, in version 1 and free, even under a price book that does not name it, because operators' books are older than the rule. */
  readonly unnamed?: true
}

type RuleVersion<K extends CallFacts['kind']> = {
  readonly applies: (facts: Facts<K>) => boolean
  /** Why it applied, in words for people who read a bill. Unlike `applies`, these may be improved. */
  readonly because: string
}

const freeUnnamed = { ruleVersion: 1, sku: null, amount: 0n } as const

type Tariff = { readonly [K in CallFacts['kind']]: readonly Rule<K>[] }

/** Decision 10: company data are charged only with a certain verdict, and never for a disposable address. */
const isCertainEnough = ({ status, sub_status }: Facts<'email_validation'>): boolean =>
  status === 'valid' || (status === 'risky' && sub_status !== 'disposable')

/** A rule for facts of a kind that never cost anything. */
const free = (id: string, because: string) =>
  ({ id, versions: [{ applies: () => true, because }], startPrice: null }) as const

/** The most decisive rule comes first. */
export const tariff: Tariff = {
  // Spec §4.1, decisions 9 and 10. Rule 4 there (requested, not found: no additional charge) is the company rule not
  // matching; rule 5 (rate-limited) is `refusal`.
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
          because: 'company data were asked for and found',
        },
        {
          // Partners ask again about unknown addresses: they would pay for the same company each time.
          applies: (facts) => facts.company_status === 'found' && isCertainEnough(facts),
          because: 'company data were asked for and found, for an address that is valid or risky',
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
  // Decision 11: an IP lookup is charged when it was located.
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
  // Decision 11: charged when profile data are delivered. A person who no longer exists costs nothing.
  profile: [
    {
      id: 'profile.cached',
      versions: [
        {
          applies: ({ source }) => source === 'cached',
          because: 'profile data of up to 30 days ago were delivered',
        },
      ],
      startPrice: { sku: 'profile_cached', amount: '2' },
    },
    {
      id: 'profile.fresh',
      versions: [
        {
          applies: ({ source }) => source === 'fresh',
          because: 'profile data of this minute were delivered',
        },
      ],
      startPrice: { sku: 'profile_fresh', amount: '5' },
    },
    {
      id: 'profile.deleted',
      versions: [
        { applies: ({ source }) => source === 'deleted', because: 'a profile that is gone costs nothing' },
      ],
      startPrice: null,
    },
  ],
  // Decision 11: the pixel controls and whoami cost nothing.
  pixel: [free('pixel', 'the pixel controls cost nothing')],
  whoami: [free('whoami', 'whoami costs nothing')],
  // A look at one's own account and ledger costs nothing, under any price book.
  account: [{ ...free('account', "a look at one's own account costs nothing"), unnamed: true }],
  ledger_export: [
    { ...free('ledger_export', "the export of one's own ledger costs nothing"), unnamed: true },
  ],
  // Decision 15: the same Idempotency-Key is charged once, ever.
  replay: [free('replay', 'the answer of an earlier call was given again, which costs nothing')],
  // Spec §4.1 rule 5, decision 11: refused calls cost nothing.
  refusal: [free('refusal', 'a call that is refused or fails costs nothing')],
}

/** One line of a charge, before it is paid. */
type RatedLine = {
  readonly sku: string
  readonly amount: MicroCredits
  readonly rule: string
  readonly ruleVersion: number
}

/** The cost of a fact, and the rules for it. `total` 0 with no lines means free, by `rule`. */
export type Rating = {
  readonly total: MicroCredits
  readonly lines: readonly RatedLine[]
  readonly rule: string
  readonly ruleVersion: number
  readonly priceBookVersion: number
}

/** An organization's own price of a SKU at the instant of the call; undefined: the price book's. */
export type PriceOverride = (sku: string) => MicroCredits | undefined

/** The price book and the tariff of this release do not fit together. Nothing is charged; an operator must act. */
export class NoRule extends Error {
  override name = 'NoRule'
}

/**
 * Prices a fact. Pure: the same fact, book and overrides always give the same rating.
 * Throws `NoRule` when the book names no known rule that matches.
 */
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
        `price book ${book.version} names ${id} version ${priced.ruleVersion}, unknown to this release`,
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

/** Whether a price book has a rule for facts of a kind; without one no such call can be rated. */
export const isPriced = (book: PriceBook, kind: CallFacts['kind']): boolean =>
  tariff[kind].some(({ id, unnamed }) => unnamed === true || book.rules.has(id))

/** Rules without which calls of their kind cannot be rated. */
export const neededRules = (): readonly string[] =>
  Object.values(tariff).flatMap((rules: readonly { id: string; unnamed?: true }[]) =>
    rules.flatMap(({ id, unnamed }) => (unnamed === true ? [] : [id])),
  )

/** The rule ids and versions this release knows, which a price book may name. */
export const knownRules = (): ReadonlyMap<string, number> =>
  new Map(
    Object.values(tariff).flatMap((rules) => rules.map((rule) => [rule.id, rule.versions.length] as const)),
  )

/** Why a rule applied, in words for people. Empty for a rule or a version of another release. */
export const becauseOf = (rule: string, version: number): string =>
  Object.values(tariff)
    .flat()
    .find(({ id }) => id === rule)?.versions[version - 1]?.because ?? ''
