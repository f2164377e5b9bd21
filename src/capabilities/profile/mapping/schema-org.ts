import type { Identifiers } from '../identifier.ts'
import { textBytesMax } from '../sources/provider.ts'
import {
  type Fields,
  fieldsOf,
  isFields,
  itemsOf,
  memberOf,
  nameOf,
  shortTextBytesMax,
  textOf,
} from './fields.ts'
import { firstProfileUrl, namesOf } from './json-resume.ts'

/**
 * schema.org's Person, as pages embed it in JSON-LD, rewritten into our own members. Followers are not connections, so they
 * are ignored.
 */

export const isSchemaOrgPerson = (record: Fields): boolean => typesOf(record).includes('Person')

export const fromSchemaOrg = (person: Fields, identifiers: Identifiers): Fields => {
  const given = textOf(memberOf(person, 'givenName'))
  const family = textOf(memberOf(person, 'familyName'))
  const names =
    given === null && family === null
      ? namesOf(memberOf(person, 'name'))
      : { firstname: given, lastname: family }
  const alumniOf = itemsOf(memberOf(person, 'alumniOf')).map((one) => inRole(one, 'alumniOf'))
  return {
    ...names,
    urn: itemsOf(memberOf(person, 'identifier')).map(identifierValue).find(isPersonUrn),
    url: firstProfileUrl(
      [
        memberOf(person, 'url'),
        memberOf(person, '@id'),
        memberOf(fieldsOf(memberOf(person, 'mainEntityOfPage')), '@id'),
        ...itemsOf(memberOf(person, 'sameAs')),
      ],
      identifiers,
    ),
    headline: headlineOf(person),
    about: itemsOf(memberOf(person, 'description')).find((one) => textOf(one, textBytesMax) !== null),
    skills: [...itemsOf(memberOf(person, 'knowsAbout')), ...itemsOf(memberOf(person, 'skills'))].map(nameOf),
    languages: itemsOf(memberOf(person, 'knowsLanguage')).map((one) => ({
      value: nameOf(one),
      norm: memberOf(one, 'alternateName'),
    })),
    address: addressOf(itemsOf(memberOf(person, 'address'))[0]),
    educations: alumniOf.filter(isSchool).map(educationOf),
    employment_history: [
      ...currentJobs(person),
      ...alumniOf.filter((one) => !isSchool(one)).map((one) => employmentOf(one, { isCurrent: false })),
    ],
    emails: contacts(person, 'email'),
    phone_numbers: contacts(person, 'telephone'),
  }
}

const typesOf = (value: unknown): string[] =>
  itemsOf(memberOf(value, '@type'))
    .filter((type) => typeof type === 'string')
    .filter((type) => type.length <= shortTextBytesMax)
    .map((type) => type.replace(/^(?:https?:\/\/(?:www\.)?schema\.org\/|schema:)/i, ''))

const identifierValue = (value: unknown): unknown => (isFields(value) ? memberOf(value, 'value') : value)

/** A bare number may come from any numbering; a URN names its own. */
const isPersonUrn = (value: unknown): boolean =>
  typeof value === 'string' && value.length <= shortTextBytesMax && /^[a-z0-9:-]+:person:\d+$/i.test(value)

const headlineOf = (person: Fields): string | null => {
  const titles = itemsOf(memberOf(person, 'jobTitle')).map(nameOf)
  return textOf(memberOf(person, 'headline')) ?? titles.find((title) => title !== null) ?? null
}

/** An organization, and the details of the person's time there: in a Role around it, or in a Role among its members. */
type Stay = { readonly organization: unknown; readonly role: Fields }

const inRole = (value: unknown, relation: 'worksFor' | 'alumniOf'): Stay => {
  if (typesOf(value).some((type) => type.endsWith('Role')))
    return { organization: itemsOf(memberOf(value, relation))[0], role: fieldsOf(value) }
  const member = itemsOf(memberOf(value, 'member')).find((one) =>
    typesOf(one).some((type) => type.endsWith('Role')),
  )
  return { organization: value, role: fieldsOf(member) }
}

const schoolTypes = /^(?:EducationalOrganization|CollegeOrUniversity|(?:[A-Z][a-z]+)?School|Preschool)$/
const schoolNames =
  /universi|college|school|institut|academ|akadem|hochschule|schule|polytech|école|escuela|faculty/i

/**
 * Pages list former employers among the organizations a person is an alumnus of, and universities without marking them as
 * schools: a plain Organization counts as a school only by its name.
 */
const isSchool = ({ organization }: Stay): boolean => {
  const types = typesOf(organization)
  if (types.some((type) => schoolTypes.test(type))) return true
  return types.length === 0 || schoolNames.test(nameOf(organization) ?? '')
}

const educationOf = ({ organization, role }: Stay): Fields => ({
  name: nameOf(organization),
  degree: nameOf(memberOf(role, 'roleName')) ?? memberOf(role, 'description'),
  startDate: memberOf(role, 'startDate'),
  endDate: memberOf(role, 'endDate'),
})

const currentJobs = (person: Fields): Fields[] => {
  const titles = itemsOf(memberOf(person, 'jobTitle')).map(nameOf)
  // The two lists are parallel, if there are two.
  return itemsOf(memberOf(person, 'worksFor')).map((one, index) =>
    employmentOf(inRole(one, 'worksFor'), { title: titles[index] ?? null }),
  )
}

/** Without an end, `worksFor` is current and `alumniOf` is not. */
const employmentOf = (
  { organization, role }: Stay,
  { title = null, isCurrent }: { title?: string | null; isCurrent?: boolean },
): Fields => ({
  title: nameOf(memberOf(role, 'roleName')) ?? title,
  description: memberOf(role, 'description'),
  startDate: memberOf(role, 'startDate'),
  endDate: memberOf(role, 'endDate'),
  location: placeOf(memberOf(organization, 'location') ?? memberOf(organization, 'address')),
  is_current: isCurrent,
  company: { company_name: nameOf(organization), lid: companyLid(memberOf(organization, 'url')) },
})

const companyLid = (url: unknown): string | null =>
  /\/company\/([^/?#]{1,200})/.exec(textOf(url) ?? '')?.[1] ?? null

const placeOf = (value: unknown): string | null => {
  const named = nameOf(value)
  if (named !== null) return named
  const { city, state, country } = addressOf(value)
  const parts = [city, state, country].map((part) => textOf(part)).filter((part) => part !== null)
  return parts.length === 0 ? null : parts.join(', ')
}

const addressOf = (value: unknown): Fields => ({
  street: memberOf(value, 'streetAddress'),
  city: memberOf(value, 'addressLocality'),
  state: memberOf(value, 'addressRegion'),
  postal_code: memberOf(value, 'postalCode'),
  country: nameOf(memberOf(value, 'addressCountry')),
})

const contacts = (person: Fields, kind: 'email' | 'telephone'): Fields[] => [
  ...itemsOf(memberOf(person, kind)).map((value) => ({ value })),
  ...itemsOf(memberOf(person, 'contactPoint')).map((point) => ({
    value: memberOf(point, kind),
    sub_type: memberOf(point, 'contactType'),
  })),
]
