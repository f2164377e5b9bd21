import { z } from 'zod'
import { missingParameter, type Refusal, submittedCharactersMax, wrongParameter } from '../../call/errors.ts'
import type { Identifiers } from './identifier.ts'
import { itemsMax, type ProfileData, type ProfileRef, textBytesMax } from './sources/provider.ts'

/** The wire format of POST /v1/profnet/profile, with the names of Spec §2.4 and §4.3. */

const text = z.string().max(textBytesMax).nullable()
/** ISO 8601, as precise as the source: a year, month or day. */
const date = z
  .string()
  .regex(/^\d{4}(-\d{2}(-\d{2})?)?$/)
  .nullable()
const contacts = z.array(z.object({ value: z.string().max(textBytesMax), sub_type: text })).max(itemsMax)

export const profileResult = z.object({
  firstname: text,
  lastname: text,
  numOfConnections: z.int().min(0).nullable(),
  headline: text,
  /** `url` and `lid` are null only for a deleted person who was requested by number, because no other identifier of this person is stored. */
  url: z.string().nullable(),
  lid: z.string().nullable(),
  about: text,
  skills: z.array(z.string().max(textBytesMax)).max(itemsMax),
  languages: z.array(z.object({ value: z.string().max(textBytesMax), norm: text })).max(itemsMax),
  address: z
    .object({
      street: text,
      city: text,
      state: text,
      postal_code: text,
      country: text,
      country_code: z.string().length(2).nullable(),
    })
    .nullable(),
  educations: z
    .array(z.object({ urn: text, name: text, degree: text, startDate: date, endDate: date }))
    .max(itemsMax),
  employment_history: z
    .array(
      z.object({
        title: text,
        description: text,
        startDate: date,
        endDate: date,
        location: text,
        is_current: z.boolean(),
        company: z.object({ lid: text, company_name: text, urn: text }).nullable(),
      }),
    )
    .max(itemsMax),
  emails: contacts,
  phone_numbers: contacts,
  deleted: z.boolean(),
})
export type ProfileResult = z.infer<typeof profileResult>

/** `id` is the text that the caller sent, for answers that repeat it. */
export type ProfileRequest = { readonly ref: ProfileRef; readonly id: string; readonly cached: boolean }

const supportedFormats = ['ID', 'URL', 'URN'] as const

/** Parses a request (Spec §4.3, rules 1 and 3). A member that is null counts as absent. */
export const parseProfileRequest = (
  { id, cached }: Readonly<Record<string, unknown>>,
  identifiers: Pick<Identifiers, 'parse'>,
): { readonly input: ProfileRequest } | { readonly refusal: Refusal } => {
  if (id === undefined || id === null) return { refusal: missingParameter('id', 'string') }
  if (typeof id !== 'string') return { refusal: wrongParameter('id', 'a string') }
  const ref = identifiers.parse(id)
  if (ref === null) return { refusal: notAnIdentifier(id) }
  if (cached !== undefined && cached !== null && typeof cached !== 'boolean')
    return { refusal: wrongParameter('cached', 'a boolean') }
  return { input: { ref, id, cached: cached ?? true } }
}

const notAnIdentifier = (submitted: string): Refusal => ({
  code: 'PROFNET_001',
  message: 'id is not a profile id, a profile URL or a person URN.',
  details: {
    id: submitted.slice(0, submittedCharactersMax),
    supported_formats: supportedFormats,
  },
})

/** The answer does not reveal whether the person is unknown, not accessible or suppressed (Spec §4.3 rule 2). */
export const profileNotFound = (id: string): Refusal => ({
  code: 'PROFNET_002',
  message: 'The profile was not found or is not accessible.',
  details: { id: id.slice(0, submittedCharactersMax) },
})

/** Arranges a person's data as in the specification. */
export const resultOf = (
  { firstname, lastname, numOfConnections, headline, ...data }: ProfileData,
  { lid, url, deleted }: Pick<ProfileResult, 'lid' | 'url' | 'deleted'>,
): ProfileResult => ({ firstname, lastname, numOfConnections, headline, url, lid, ...data, deleted })

/** A person without data: optional members are null and lists are empty. */
export const noData: ProfileData = {
  firstname: null,
  lastname: null,
  numOfConnections: null,
  headline: null,
  about: null,
  skills: [],
  languages: [],
  address: null,
  educations: [],
  employment_history: [],
  emails: [],
  phone_numbers: [],
}
