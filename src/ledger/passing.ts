import { z } from 'zod'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import { type PriceBook, priceBookOf } from '../billing/price-book.ts'
import {
  type CallFacts,
  callFacts,
  callOutcome,
  callsRefusedV1,
  rateLimitExceededV1,
} from '../events/calls.ts'
import { capability } from '../events/capabilities.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import { creditAdjustedV2, lotFill, monthClosedV1 } from '../events/credits.ts'
import { priceBookPublishedV1 } from '../events/prices.ts'
import { traceId } from '../events/primitives.ts'
import type { Committed, LedgerCommand } from './command.ts'
import type { Figures, FiguresQuestion } from './figures.ts'
import type { ReservationRequest } from './reservations.ts'

/**
 * How commands and questions travel between the processes that write ledgers together. Both ends are proved to be of one
 * installation; what arrives is checked all the same, because a ledger keeps what it is given for ever.
 */

const micro = z
  .string()
  .regex(/^-?\d{1,30}$/)
  .transform(BigInt)
const revision = z.int().min(-1)
const commandKey = z.string().min(1).max(1_000)
const organizationId = z.string().min(1).max(100)

const callToRecord = z.object({
  keyId: z.string(),
  capability,
  outcome: callOutcome,
  code: z.string().exactOptional(),
  facts: callFacts,
  idempotent: z.boolean().exactOptional(),
  requestFingerprint: z.string().exactOptional(),
})

const factsKind = z.enum(callFacts.options.map(({ shape }) => shape.kind.value))

/** Facts that are priced and never recorded: a call holds credits before it knows whom its answer will be about. */
const pricedFacts = z.looseObject({ kind: factsKind }).transform((facts) => facts as unknown as CallFacts)

/** A price book is named by what it holds, and sent along only to a process that does not know it. */
const bookName = z.string().max(100)
const ofCall = { call: callToRecord, book: bookName }

const instruction = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('register'), name: z.string(), overdraftLimit: micro }),
  z.object({
    kind: z.literal('grant'),
    amount: micro,
    priority: z.int(),
    expiresAt: z.string().nullable(),
    reason: z.string(),
    reference: z.string().exactOptional(),
  }),
  z.object({
    kind: z.literal('override_price'),
    sku: z.string(),
    amount: micro.nullable(),
    effectiveFrom: z.string(),
    reason: z.string().exactOptional(),
  }),
  z.object({
    kind: z.literal('withdraw_override'),
    overrideId: z.string().nullable(),
    overrideRevision: z.int(),
    sku: z.string(),
    reason: z.string(),
  }),
  z.object({ kind: z.literal('set_threshold'), amount: micro.nullable() }),
  z.object({ kind: z.literal('close_month'), closed: monthClosedV1 }),
  z.object({ kind: z.literal('void'), grantId: z.string(), reason: z.string() }),
  z.object({ kind: z.literal('expire'), grantId: z.string() }),
  z.object({
    kind: z.literal('adjust'),
    adjusts: z.string().nullable(),
    amount: micro,
    reason: z.string(),
    rerateRun: z.string().nullable(),
    reference: z.string().exactOptional(),
    chargedAt: z.string().exactOptional(),
    correction: creditAdjustedV2.shape.kind.exclude(['void']).exactOptional(),
    into: z.array(lotFill).max(10_000).exactOptional(),
    unlessAdjustedAfter: revision.exactOptional(),
    unlessReratedAfter: revision.exactOptional(),
    upToAvailable: z.literal(true).exactOptional(),
  }),
  z.object({
    kind: z.literal('record'),
    ...ofCall,
    only: z.enum(['free', 'paid', 'unpaid']).exactOptional(),
  }),
  z.object({ kind: z.literal('refuse'), ...ofCall, dearest: pricedFacts, held: micro }),
  z.object({ kind: z.literal('count_rate_limited'), exceeded: rateLimitExceededV1 }),
  z.object({
    kind: z.literal('count_refused'),
    refused: callsRefusedV1.omit({ free_by: true }),
    book: bookName,
  }),
])

const envelope = z.object({
  key: commandKey,
  atMs: z.number(),
  actor: z.string().max(1_000),
  requestId: z.string().exactOptional(),
  repeats: z.string().max(64).exactOptional(),
  traceId: traceId.exactOptional(),
  absentUpTo: revision,
  fresh: z.literal(true).exactOptional(),
  waitMaxMs: z.number().positive(),
  owes: z.string().exactOptional(),
})

/** As it was published: its digest is worked out anew from what arrives. */
const priceBook = priceBookPublishedV1
  .omit({ approver: true })
  .transform((published): PriceBook => priceBookOf(published))

const cost = z.object({ facts: pricedFacts, book: bookName, held: micro.exactOptional() })
const reservationId = z.int()

const question = z.discriminatedUnion('ask', [
  z.object({
    ask: z.literal('submit'),
    /** Grows with every command that the asker sends, also with one that it sends again. */
    serial: z.int().min(1),
    organizationId,
    command: envelope,
    instruction,
    book: priceBook.exactOptional(),
  }),
  z.object({
    ask: z.literal('figures'),
    organizationId,
    atMs: z.number(),
    fresh: z.boolean(),
    cost: cost.nullable(),
    book: priceBook.exactOptional(),
  }),
  z.object({
    ask: z.literal('reserve'),
    organizationId,
    id: reservationId,
    atMs: z.number(),
    cost,
    book: priceBook.exactOptional(),
  }),
  z.object({ ask: z.literal('release'), id: reservationId }),
])
export type PassedQuestion = z.output<typeof question>

/** What another process asks; null: it cannot be understood. */
export const readQuestion = (message: unknown): PassedQuestion | null => {
  const read = question.safeParse(message)
  return read.success ? read.data : null
}

export const bookMessage = ({ version, effectiveFromMs, rules }: PriceBook) => ({
  version,
  effective_from: new Date(effectiveFromMs).toISOString(),
  rules: [...rules].map(([rule, { ruleVersion, sku, amount }]) => ({
    ...{ rule, rule_version: ruleVersion, sku },
    amount: formatCredits(amount),
  })),
})

/** The book a command is decided with, if its kind has one. */
export const bookOf = (command: LedgerCommand): PriceBook | null => ('book' in command ? command.book : null)

type SubmitOptions = {
  readonly serial: number
  readonly bookName: string | null
  readonly absentUpTo: number
  readonly fresh: boolean
  readonly waitMaxMs: number
}

export const submitMessage = (
  ofOrganization: string,
  command: LedgerCommand,
  { serial, bookName: named, absentUpTo, fresh, waitMaxMs }: SubmitOptions,
) => {
  const { key, atMs, actor, requestId, repeats, traceId, owes } = command
  const from = { key, atMs, actor, requestId, repeats, traceId, owes }
  return {
    ask: 'submit',
    serial,
    organizationId: ofOrganization,
    command: { ...from, absentUpTo, waitMaxMs, ...(fresh ? { fresh } : {}) },
    // Nearly all are records, and they hold no amount. What the envelope holds is passed over by who reads it.
    instruction:
      command.kind === 'record'
        ? { kind: command.kind, call: command.call, book: named, only: command.only }
        : { ...withTexts(command), ...(named === null ? {} : { book: named }) },
  }
}

/** Amounts as texts, for JSON has no bigint. */
const withTexts = (members: object): object =>
  Object.fromEntries(
    Object.entries(members).map(([name, value]) => [name, typeof value === 'bigint' ? String(value) : value]),
  )

export const figuresMessage = (
  ofOrganization: string,
  { atMs, fresh = false, cost: asked }: FiguresQuestion,
  named: string | null,
) => ({
  ask: 'figures',
  organizationId: ofOrganization,
  atMs,
  fresh,
  cost: asked === undefined || named === null ? null : withTexts({ ...asked, book: named }),
})

export const reserveMessage = (
  ofOrganization: string,
  { atMs, facts }: ReservationRequest,
  { id, named }: { id: number; named: string },
) => ({ ask: 'reserve', organizationId: ofOrganization, id, atMs, cost: { facts, book: named } })

export const releaseMessage = (id: number) => ({ ask: 'release', id })

const isObject = (data: unknown): boolean => data === Object(data) && !Array.isArray(data)

const answer = z.discriminatedUnion('is', [
  z.object({
    is: z.literal('committed'),
    revision,
    balance: micro,
    repeated: z.boolean(),
    requestId: z.string().exactOptional(),
    // What the owner decided or read from the ledger: its schemas were checked there.
    events: z.array(z.object({ type: z.string(), data: z.custom<object>(isObject) })),
  }),
  /** The ledger's rules forbid the command. */
  z.object({ is: z.literal('refused'), message: z.string() }),
  /** Not looked for: to be sent again with a later `absentUpTo`. */
  z.object({ is: z.literal('behind'), revision }),
  /** Not done, and never will be. */
  z.object({ is: z.literal('dropped') }),
  /** It may still be written. */
  z.object({ is: z.literal('unknown') }),
  z.object({ is: z.literal('book_missing') }),
  z.object({
    is: z.literal('figures'),
    revision,
    balance: micro,
    available: micro,
    cost: z.object({ required: micro, affordability: z.enum(['free', 'paid', 'unpaid']) }).nullable(),
  }),
  z.object({ is: z.literal('held') }),
  z.object({ is: z.literal('not_enough'), held: micro }),
])
export type PassedAnswer = z.output<typeof answer>

/** What another process answered; null: it cannot be understood, and says nothing of what was done. */
export const readAnswer = (message: unknown): PassedAnswer | null => {
  const read = answer.safeParse(message)
  return read.success ? read.data : null
}

/** `Committed` as it was told by another process. `asked`: the request whose command it was asked to write. */
export const committedOf = (
  { is: _, events, ...rest }: Extract<PassedAnswer, { is: 'committed' }>,
  asked: string | undefined,
): Committed => ({
  ...(rest.repeated ? {} : { requestId: asked }),
  ...rest,
  events: events as unknown as readonly LedgerEvent[],
})

export const committedMessage = ({ events, revision: at, balance, repeated, requestId }: Committed) => ({
  is: 'committed',
  revision: at,
  balance: String(balance),
  repeated,
  // Who asks knows whose it is, unless it was there before.
  ...(repeated && requestId !== undefined ? { requestId } : {}),
  events,
})

export const figuresAnswer = ({ revision: at, balance, available, cost: costs }: Figures) => ({
  is: 'figures',
  revision: at,
  balance: String(balance),
  available: String(available),
  cost: costs === null ? null : { ...costs, required: String(costs.required) },
})

export const notEnoughMessage = (held: MicroCredits) => ({ is: 'not_enough', held: String(held) })
