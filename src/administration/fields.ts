import { z } from 'zod'
import { isMonth } from '../billing/months.ts'
import { parseJson } from '../call/json-text.ts'
import { aRequestId, requestIdIn } from '../call/request-id.ts'
import { positionMax } from '../event-log/port.ts'
import { organizationId } from '../events/primitives.ts'
import { nearest } from '../foundation/nearest.ts'
import {
  amountOf,
  durationMsOf,
  expiryOf,
  InputFault,
  instantOf,
  keyIdOf,
  labelOf,
  listOf,
  type PriceName,
  priceNameOf,
  referenceOf,
  signedAmountOf,
  wholeNumber,
} from './input.ts'

/** The kinds of fields. Each parses a typed text or a JSON value by the rules of `input.ts`, and defines how forms show it. */

/**
 * The control with which a form asks for a value. `line` is a string for people, such as a reason. Forms leave a `line` empty and
 * show its default next to it, so that no unread default is recorded. `id` is a value that other pages provide, such as the id of a
 * call. `document` is JSON or has many lines: forms accept its text, and the command line expects the path of a file.
 */
type Control =
  | 'text'
  | 'line'
  | 'number'
  | 'flag'
  | 'choice'
  | 'choices'
  | 'organization'
  | 'key'
  | 'id'
  | 'instant'
  | 'day'
  | 'month'
  | 'file'
  | 'document'

export type FieldWords = {
  readonly label: string
  readonly help: string
}

/** The lists from which people choose an entry by its name. */
export type Picks = 'organizations' | 'keys' | 'users'

type Shown = FieldWords & {
  readonly control: Control
  readonly picks?: Picks
  /** Whether a day with a time is accepted. */
  readonly instants?: boolean
  /** The name on the command line, without dashes. Default: the field's name. */
  readonly flag?: string
  readonly options?: readonly string[]
  /**
   * Data about a person, which must not be in a URL. On the command line, `-` reads the value from standard input, so that the
   * value is not in the shell's history.
   */
  readonly personal?: true
  /** Set if the field also accepts the name of a price book or a proposal instead of a document. */
  readonly named?: true
}

export type Field = Shown & {
  /** The name in JSON. */
  readonly name: string
  /** The name on the command line and in forms. */
  readonly flag: string
  readonly required: boolean
  /** The default as a string; undefined if there is none. */
  readonly byDefault: string | undefined
}

const shown = z.registry<Shown>()

/** The texts and the control of a field; undefined if the field was not made by this module. */
export const shownOf = (schema: z.core.$ZodType): Shown | undefined => {
  const own = shown.get(schema)
  if (own !== undefined) return own
  return schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault || schema instanceof z.ZodDefault
    ? shownOf(schema.unwrap())
    : undefined
}

/** The help for a typed value. For expiries, the help also mentions instants, which every interface except forms accepts. */
export const typedHelp = ({ help, instants = false }: Shown): string =>
  instants ? `${help}; an ISO 8601 instant is accepted too` : help

/** The fields of an input, in the order in which they are declared. */
export const fieldsIn = (input: z.ZodObject): Field[] =>
  Object.entries(input.shape).map(([name, schema]) => {
    const words = shownOf(schema)
    if (words === undefined) throw new Error(`the field ${name} is not from fields.ts`)
    const given = schema instanceof z.ZodPrefault ? schema.def.defaultValue : undefined
    return {
      ...words,
      name,
      flag: words.flag ?? name.replaceAll('_', '-'),
      required: !z.safeParse(schema, undefined).success,
      byDefault: given === undefined ? undefined : String(given),
    }
  })

/** Zod expects an issue instead of an exception. */
const reading =
  <Typed, Value>(parse: (typed: Typed) => Value) =>
  (typed: Typed, context: z.RefinementCtx): Value => {
    try {
      return parse(typed)
    } catch (error) {
      if (!(error instanceof InputFault)) throw error
      context.addIssue({ code: 'custom', message: error.message })
      return z.NEVER
    }
  }

const organizationIdOf = (typed: string): string => {
  const id = typed.trim()
  if (organizationId.safeParse(id).success) return id
  throw new InputFault('', `"${id}" is not an organization id`)
}

const text = <Value>(parse: (text: string) => Value, words: Shown) =>
  z.string().transform(reading(parse)).register(shown, words)

/** Forms show a different help text, because they also find an organization by its name. */
export const organizationHelp = 'organization id, such as org_01J…'

export const organization = ({ label = 'Organization', help = organizationHelp }: Partial<FieldWords> = {}) =>
  text((typed) => typed.trim(), {
    label,
    help,
    flag: 'org',
    control: 'organization',
    picks: 'organizations',
  })

/** Micro-credits above zero; `zero` also allows zero. */
export const credits = (words: FieldWords, { zero = false }: { readonly zero?: boolean } = {}) =>
  text((amount) => amountOf('', amount.trim(), { zero }), { ...words, control: 'text' })

/** Micro-credits, above or below zero. */
export const signedCredits = (words: FieldWords) =>
  text((amount) => signedAmountOf('', amount.trim()), { ...words, control: 'text' })

/** Micro-credits, or null for the word "none". */
export const creditsOrNone = (words: FieldWords) =>
  text((amount) => (amount.trim() === 'none' ? null : amountOf('', amount.trim(), { zero: true })), {
    ...words,
    control: 'text',
  })

export const number = (words: FieldWords, bounds: { readonly min: number; readonly max: number }) =>
  z
    .union([z.string(), z.number().transform(String)])
    .transform(reading((digits) => wholeNumber('', digits, bounds)))
    .register(shown, { ...words, control: 'number' })

/** An instant in UTC, as ISO 8601. */
export const instant = (words: FieldWords) =>
  text((typed) => instantOf('', typed), { ...words, control: 'instant' })

/** An instant in UTC. A day without a time means its last millisecond. Forms ask for a day. */
export const expiry = (words: FieldWords) =>
  text((typed) => expiryOf('', typed), { ...words, control: 'day', instants: true })

/** A day in UTC, such as 2026-11-28. */
export const day = (words: FieldWords) =>
  text(
    (typed) => {
      const of = typed.trim()
      if (/^\d{4}-\d\d-\d\d$/.test(of)) return instantOf('', of).slice(0, 10)
      throw new InputFault('', `"${of}" is not a day such as 2026-11-28`)
    },
    { ...words, control: 'day' },
  )

/** A line of text for people. */
export const line = (words: FieldWords) => text((typed) => labelOf('', typed), { ...words, control: 'line' })

export const reason = ({
  label = 'Reason',
  help = 'kept in the event log with your name and shown to the organization',
}: Partial<FieldWords> = {}) => line({ label, help })

export const reference = () =>
  text((typed) => referenceOf('', typed), {
    label: 'Reference',
    help: 'your own reference for this change, such as an invoice number; a repeated command with the same reference changes nothing',
    control: 'line',
  })

/** An id from another page or command. */
export const id = (words: FieldWords, form: RegExp, example: string) =>
  text(
    (typed) => {
      const trimmed = typed.trim()
      if (form.test(trimmed)) return trimmed
      throw new InputFault('', `"${trimmed}" is not an id such as ${example}`)
    },
    { ...words, control: 'id' },
  )

/** The request id in a text, in upper case. Throws an `InputFault` for `field` if the text is not one. `where` precedes the text in its message. */
export const requestIdOf = (field: string, typed: string, where = ''): string => {
  const id = requestIdIn(typed)
  if (id !== null) return id
  throw new InputFault(field, `${where}"${typed.trim().slice(0, 40)}" is not ${aRequestId}`)
}

/** A call, by its request id. */
export const call = () =>
  text((typed) => requestIdOf('', typed), {
    label: 'Call',
    help: 'request id of the call, as in X-Request-Id',
    control: 'id',
  })

/** A UUID from another page or command. */
export const uuid = (words: FieldWords) =>
  id(words, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, '0197a2c4-5d1e-7b7a-8f00-3c2b1a9d8e7f')

/** A flag. Absent means not set. */
export const flag = (words: FieldWords) =>
  z
    .union([z.boolean(), z.enum(['true', 'false', 'on']).transform((typed) => typed !== 'false')])
    .optional()
    .transform((value) => value === true)
    .register(shown, { ...words, control: 'flag' })

/** The maximum number of options that a message lists; if there are more, it suggests only the most similar one. */
const namedMax = 20

/** One of a few words. */
export const choice = <Option extends string>(words: FieldWords, options: readonly Option[]) =>
  text(
    (typed) => {
      const found = options.find((one) => one === typed.trim())
      if (found !== undefined) return found
      const meant = nearest(typed.trim(), options)
      const others = options.length > namedMax ? 'not a known value' : `not one of ${options.join(', ')}`
      throw new InputFault('', `"${typed}" is ${others}${meant === null ? '' : `; did you mean ${meant}?`}`)
    },
    { ...words, control: 'choice', options },
  )

/** A name that the command itself looks up and checks. */
export const name = (words: FieldWords) =>
  text((typed) => labelOf('', typed, 64), { ...words, control: 'text' })

/** A position of the event log. */
export const position = (words: FieldWords) =>
  text(
    (typed) => {
      if (/^\s*\d{1,19}\s*$/.test(typed) && BigInt(typed) <= positionMax) return BigInt(typed)
      throw new InputFault('', `"${typed}" is not a position of the event log`)
    },
    { ...words, control: 'id' },
  )

/** A month in UTC, such as 2026-11. */
export const month = (words: FieldWords) =>
  text(
    (typed) => {
      if (isMonth(typed.trim())) return typed.trim()
      throw new InputFault('', `"${typed}" is not a month such as 2026-11`)
    },
    { ...words, control: 'month' },
  )
/** The id of an API key, from the id or the whole key. */
export const apiKey = () =>
  text((typed) => keyIdOf('', typed), {
    label: 'Key',
    help: 'the whole key, or its id: the 16 characters after enl_live_ or enl_test_',
    control: 'key',
    picks: 'keys',
  })

/** Several values, separated by commas or as a JSON array. `options` are the values offered by a form. */
export const list = <Value>(
  parse: (values: readonly string[]) => Value,
  words: FieldWords,
  options?: readonly string[],
) =>
  z
    .union([z.string().transform(listOf), z.array(z.string())])
    .transform(reading(parse))
    .register(shown, { ...words, ...(options ? { control: 'choices', options } : { control: 'text' }) })

/** A duration in milliseconds. */
export const duration = (words: FieldWords, bounds: { readonly daysMax: number }) =>
  text((typed) => durationMsOf('', typed, bounds), { ...words, control: 'text' })

const userNameMax = 64

/** The name of an existing user. */
export const user = () =>
  text((typed) => labelOf('', typed, userNameMax), {
    label: 'User',
    help: 'user name, such as ada',
    control: 'id',
    picks: 'users',
  })

/** A name for a new user. */
export const newUser = () =>
  text((typed) => labelOf('', typed, userNameMax), {
    label: 'User name',
    help: 'such as ada; with an identity provider, the name used by the provider, such as an e-mail address',
    control: 'text',
  })

/** The organization of a partner. Pages of an organization leave this field empty, because the command changes a user. */
export const partnerOrganization = () =>
  text(organizationIdOf, {
    label: 'Organization',
    help: 'only for a partner: its organization, such as org_01J…',
    control: 'text',
    flag: 'org',
    picks: 'organizations',
  })

/** A version of the price book, or a proposal. */
export const priceName = (words: FieldWords) =>
  text((typed) => priceNameOf('', typed), { ...words, control: 'id' })

const json = z.union([z.string(), z.array(z.unknown()), z.record(z.string(), z.unknown())])

const parsedJson = (given: z.output<typeof json>): unknown => {
  if (typeof given !== 'string') return given
  try {
    return parseJson(given)
  } catch (error) {
    throw new InputFault('', `it is not JSON: ${error instanceof Error ? error.message : String(error)}`)
  }
}

export const document = (words: FieldWords) =>
  json.transform(reading(parsedJson)).register(shown, { ...words, control: 'document' })

/** A document of price rules, or of changes to them. */
export const priceRules = (words: FieldWords) =>
  json.transform(reading(parsedJson)).register(shown, { ...words, control: 'document', flag: 'file' })

/** A string of many lines. */
export const manyLines = <Value>(
  parse: (text: string) => Value,
  words: FieldWords,
  { charactersMax }: { readonly charactersMax: number },
) =>
  text(
    (typed) => {
      if (typed.length <= charactersMax) return parse(typed)
      throw new InputFault('', `it has ${typed.length} characters, but the maximum is ${charactersMax}`)
    },
    { ...words, control: 'document' },
  )

/** Prices by name, or as a document that contains the rules. */
export type PricesGiven = PriceName | { readonly kind: 'rules'; readonly document: unknown }

export const prices = (words: FieldWords) =>
  json
    .transform(
      reading((given): PricesGiven => {
        if (typeof given !== 'string' || /^\s*[[{]/.test(given))
          return { kind: 'rules', document: parsedJson(given) }
        return priceNameOf('', given)
      }),
    )
    .register(shown, { ...words, control: 'document', named: true })

/** A string that the command itself checks. */
export const anyText = (words: FieldWords) => text((typed) => typed.trim(), { ...words, control: 'text' })

/** A string about a person, which the command itself checks. */
export const personal = (words: FieldWords) =>
  text((typed) => labelOf('', typed, personalMax), { ...words, control: 'text', personal: true })
/** Longer than any e-mail address or profile URL. */
const personalMax = 2_000

/** A file on the machine that runs the command. Only the command line offers this field. */
export const path = (words: FieldWords) => text((typed) => typed, { ...words, control: 'file' })

/** A place in a ledger: a revision (digits only) or an instant in UTC. */
export const revisionOrInstant = (words: FieldWords) =>
  text(
    (typed) =>
      /^\s*\d+\s*$/.test(typed)
        ? ({ kind: 'revision', revision: wholeNumber('', typed, revisionBounds) } as const)
        : ({ kind: 'instant', instant: instantOf('', typed) } as const),
    { ...words, control: 'text' },
  )

const revisionBounds = { min: 0, max: Number.MAX_SAFE_INTEGER }
