import parsePhoneNumber, { type CountryCode, isSupportedCountry } from 'libphonenumber-js'
import { canonicalLid, type Identifiers, numericIdOf } from '../identifier.ts'
import { itemsMax, type ProfileData, textBytesMax } from '../sources/provider.ts'
import {
  countOf,
  type Fields,
  fieldsOf,
  isFields,
  itemsOf,
  known,
  memberOf,
  shortTextBytesMax,
  textOf,
} from './fields.ts'
import { languageCode } from './languages.ts'

/** A profile, converted from a source's answer with the members listed in Spec §2.4. Every value is checked, and no function throws. */
export type MappedProfile = {
  readonly lid: string | null
  readonly urn: string | null
  readonly data: ProfileData
  /** The time when the source saw the data; null if the answer does not contain this time. */
  readonly observedAtMs: number | null
  /** Earlier ids of this person according to the source, in canonical form. */
  readonly formerLids: readonly string[]
  readonly deleted: boolean
}

/** Null if `own` is not an object. */
export const mapProfile = (own: unknown, identifiers: Identifiers): MappedProfile | null => {
  if (!isFields(own)) return null
  return {
    lid: lidOf(own, identifiers),
    urn: numericIdOf(memberOf(own, 'urn')),
    data: profileDataOf(own),
    observedAtMs: instantOf(memberOf(own, 'observed_at')),
    formerLids: known(
      itemsOf(memberOf(own, 'former_lids')).map((lid) =>
        typeof lid === 'string' ? canonicalLid(lid) : null,
      ),
    ),
    deleted: memberOf(own, 'deleted') === true,
  }
}

/** Whether the profile contains nothing about the person, so that there is nothing to charge for. */
export const isEmptyProfile = (data: ProfileData): boolean =>
  Object.values(data).every((member) => member === null || (Array.isArray(member) && member.length === 0))

const lidOf = (own: Fields, identifiers: Identifiers): string | null => {
  const lid = memberOf(own, 'lid')
  if (typeof lid === 'string' && lid !== '') return canonicalLid(lid)
  const url = memberOf(own, 'url')
  const ref = typeof url === 'string' && url.includes('/') ? identifiers.parse(url) : null
  return ref?.kind === 'lid' ? ref.value : null
}

const instantCharactersMax = 40

/** Returns milliseconds since 1970 for a timestamp with a zone, or for a number of seconds or milliseconds. */
const instantOf = (value: unknown): number | null => {
  if (typeof value === 'number' && Number.isFinite(value) && value > 0) {
    // As seconds, a larger number would be after the year 5000; as milliseconds, a smaller one would be before 1974.
    return Math.round(value < 100_000_000_000 ? value * 1000 : value)
  }
  if (typeof value !== 'string' || value.length > instantCharactersMax) return null
  if (!/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})$/.test(value)) return null
  const ms = Date.parse(value)
  return Number.isNaN(ms) ? null : ms
}

/** In characters of JSON. A real profile has under 50,000. Each profile is sealed into one event. */
export const profileCharactersMax = 150_000

/**
 * Reads our own members. A missing, empty or mistyped member becomes null, and such items are left out of lists. The lists of a profile that
 * is too large are cut.
 */
export const profileDataOf = (own: Fields): ProfileData => {
  let data = readData(own)
  for (let items = itemsMax / 2; items >= 1 && JSON.stringify(data).length > profileCharactersMax; items /= 2)
    data = shortened(data, Math.floor(items))
  return data
}

const shortened = (data: ProfileData, items: number): ProfileData => ({
  ...data,
  skills: data.skills.slice(0, items),
  languages: data.languages.slice(0, items),
  educations: data.educations.slice(0, items),
  employment_history: data.employment_history.slice(0, items),
  emails: data.emails.slice(0, items),
  phone_numbers: data.phone_numbers.slice(0, items),
})

const readData = (own: Fields): ProfileData => {
  const member = (name: string): unknown => memberOf(own, name)
  const address = addressOf(member('address'))
  return {
    firstname: textOf(member('firstname')),
    lastname: textOf(member('lastname')),
    numOfConnections: countOf(member('numOfConnections')),
    headline: textOf(member('headline')),
    about: textOf(member('about'), textBytesMax),
    skills: known(itemsOf(member('skills')).map((skill) => textOf(skill) ?? textOf(memberOf(skill, 'name')))),
    languages: itemsOf(member('languages')).flatMap(languageOf),
    address,
    educations: itemsOf(member('educations')).flatMap(educationOf),
    employment_history: itemsOf(member('employment_history')).flatMap(employmentOf),
    emails: contactsOf(member('emails'), emailOf),
    phone_numbers: contactsOf(member('phone_numbers'), (text) =>
      phoneOf(text, address?.country_code ?? null),
    ),
  }
}

const languageOf = (item: unknown): ProfileData['languages'] => {
  const value = textOf(item) ?? textOf(memberOf(item, 'value'))
  if (value === null) return []
  return [{ value, norm: languageCode(value) ?? languageCode(textOf(memberOf(item, 'norm')) ?? '') }]
}

const regionNames = new Intl.DisplayNames(['en'], { type: 'region', fallback: 'none' })

const addressOf = (value: unknown): ProfileData['address'] => {
  const fields = fieldsOf(value)
  const named = textOf(memberOf(fields, 'country'))
  const code = countryCodeOf(memberOf(fields, 'country_code')) ?? countryCodeOf(named)
  const address = {
    street: textOf(memberOf(fields, 'street')),
    city: textOf(memberOf(fields, 'city')),
    state: textOf(memberOf(fields, 'state')),
    postal_code: textOf(memberOf(fields, 'postal_code')),
    country: named !== null && countryCodeOf(named) === null ? named : nameOfCountry(code),
    country_code: code,
  }
  return Object.values(address).every((part) => part === null) ? null : address
}

/** Returns an ISO 3166-1 alpha-2 code in upper case; null if the value is not a country. */
const countryCodeOf = (value: unknown): string | null => {
  if (typeof value !== 'string' || value.length > shortTextBytesMax) return null
  if (!/^[A-Za-z]{2}$/.test(value.trim())) return null
  const code = value.trim().toUpperCase()
  return nameOfCountry(code) === null ? null : code
}

/** Node.js has a name for ZZ, which is not a country. */
const unknownRegion = 'ZZ'

const nameOfCountry = (code: string | null): string | null =>
  code === null || code === unknownRegion ? null : (regionNames.of(code) ?? null)

const educationOf = (item: unknown): ProfileData['educations'] => {
  const { endDate } = endOf(memberOf(item, 'endDate'), undefined)
  const education = {
    urn: textOf(memberOf(item, 'urn')),
    name: textOf(memberOf(item, 'name')),
    degree: textOf(memberOf(item, 'degree')),
    startDate: partialDate(memberOf(item, 'startDate')),
    endDate,
  }
  return Object.values(education).every((part) => part === null) ? [] : [education]
}

const employmentOf = (item: unknown): ProfileData['employment_history'] => {
  const { endDate, isCurrent } = endOf(memberOf(item, 'endDate'), memberOf(item, 'is_current'))
  const employment = {
    title: textOf(memberOf(item, 'title')),
    description: textOf(memberOf(item, 'description'), textBytesMax),
    startDate: partialDate(memberOf(item, 'startDate')),
    endDate,
    location: textOf(memberOf(item, 'location')),
    company: companyOf(memberOf(item, 'company')),
  }
  if (Object.values(employment).every((part) => part === null)) return []
  const { company, ...rest } = employment
  return [{ ...rest, is_current: isCurrent, company }]
}

type Company = ProfileData['employment_history'][number]['company']

const companyOf = (value: unknown): Company => {
  const company = {
    lid: textOf(memberOf(value, 'lid')),
    company_name: textOf(memberOf(value, 'company_name')) ?? textOf(value),
    urn: textOf(memberOf(value, 'urn')),
  }
  return Object.values(company).every((part) => part === null) ? null : company
}

type Contact = ProfileData['emails'][number]

const contactsOf = (value: unknown, read: (text: string) => string | null): Contact[] => {
  const found = new Map<string, Contact>()
  for (const item of itemsOf(value)) {
    const text = textOf(item) ?? textOf(memberOf(item, 'value'))
    const contact = text === null ? null : read(text)
    if (contact === null || found.has(contact)) continue
    found.set(contact, { value: contact, sub_type: subTypeOf(memberOf(item, 'sub_type')) })
  }
  return [...found.values()]
}

const subTypeCharactersMax = 40

const subTypeOf = (value: unknown): string | null => {
  const words = (textOf(value) ?? '').toUpperCase().match(/[\p{L}\p{Nd}]+/gu)
  return words === null ? null : words.join('_').slice(0, subTypeCharactersMax)
}

/** Checks only the form, with the 254 characters of RFC 5321, because the source declares the text to be an address. */
const emailOf = (text: string): string | null => {
  const address = text.replace(/^mailto:/i, '').split('?', 1)[0] ?? ''
  return address.length <= 254 && /^[^\s@<>]+@[^\s@<>]+$/.test(address) ? address : null
}

const phoneCharactersMax = 64

/**
 * Returns a number in E.164 form; null for impossible numbers, because a wrong number can reach strangers. A number without a country code is
 * parsed as a number in the person's country.
 */
const phoneOf = (text: string, country: string | null): string | null => {
  if (text.length > phoneCharactersMax) return null
  const digits = text.replace(/^tel:/i, '')
  const number = parsePhoneNumber(digits, {
    extract: false,
    ...(isCountry(country) ? { defaultCountry: country } : {}),
  })
  return number?.isPossible() === true ? number.number : null
}

const isCountry = (code: string | null): code is CountryCode => code !== null && isSupportedCountry(code)

/**
 * The dates of a career have the precision of a year, a month or a day. A month or day is never added, because readers could not distinguish
 * an invented day from a known day.
 */

/** Dates outside these years are database placeholders (0001-01-01, 9999-12-31). */
const yearMin = 1900
const yearMax = 2100

const dateCharactersMax = 100

const present = new Set(['present', 'current', 'currently', 'now', 'today', 'ongoing', 'to date'])

/**
 * Returns "YYYY", "YYYY-MM" or "YYYY-MM-DD" (ISO 8601); null for anything else, including impossible days. Accepts these
 * forms, timestamps, which are cut to their day, years as numbers, and `{year, month, day}`.
 */
export const partialDate = (value: unknown): string | null => {
  if (typeof value === 'number') return fromParts(value, undefined, undefined)
  if (typeof value === 'string') return value.length > dateCharactersMax ? null : fromText(value.trim())
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null
  const { year, month, day }: { year?: unknown; month?: unknown; day?: unknown } = value
  return fromParts(year, month ?? undefined, day ?? undefined)
}

/**
 * Returns the end of a position and whether it is current. The source's `isCurrent` decides. Without it, a position without an end or with
 * the end "Present" is current.
 */
export const endOf = (
  value: unknown,
  isCurrent: unknown,
): { readonly endDate: string | null; readonly isCurrent: boolean } => {
  if (isCurrent === true) return { endDate: null, isCurrent: true }
  const goesOn = value === undefined || value === null || value === '' || isPresent(value)
  if (goesOn) return { endDate: null, isCurrent: isCurrent !== false }
  return { endDate: partialDate(value), isCurrent: false }
}

const isPresent = (value: unknown): boolean =>
  typeof value === 'string' && (value.trim() === '' || present.has(value.trim().toLowerCase()))

const fromText = (text: string): string | null => {
  const parts = /^(\d{4})(?:-(\d{2})(?:-(\d{2})(?:[T ]\d{2}:\d{2}.{0,30})?)?)?$/.exec(text)
  if (parts === null) return null
  const [, year, month, day] = parts
  return fromParts(Number(year), numberOf(month), numberOf(day))
}

const numberOf = (digits: string | undefined): number | undefined =>
  digits === undefined ? undefined : Number(digits)

const fromParts = (year: unknown, month: unknown, day: unknown): string | null => {
  if (!isWithin(year, yearMin, yearMax)) return null
  if (month === undefined) return day === undefined ? String(year) : null
  if (!isWithin(month, 1, 12)) return null
  const yearAndMonth = `${year}-${twoDigits(month)}`
  if (day === undefined) return yearAndMonth
  return isWithin(day, 1, daysIn(year, month)) ? `${yearAndMonth}-${twoDigits(day)}` : null
}

const isWithin = (value: unknown, min: number, max: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max

const daysIn = (year: number, month: number): number => new Date(Date.UTC(year, month, 0)).getUTCDate()

const twoDigits = (value: number): string => String(value).padStart(2, '0')
