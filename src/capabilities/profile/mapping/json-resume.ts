import type { Identifiers } from '../identifier.ts'
import { textBytesMax } from '../sources/provider.ts'
import { type Fields, fieldsOf, isFields, itemsOf, known, memberOf, textOf } from './fields.ts'

/** JSON Resume (version 1.0.0 of its schema), rewritten into our own members. */

export const isJsonResume = (record: Fields): boolean => isFields(memberOf(record, 'basics'))

/** Besides `basics`, a record may carry our own `lid`, `urn`, `observed_at` and `deleted`, which no resume has. */
export const fromJsonResume = (record: Fields, identifiers: Identifiers): Fields => {
  const basics = fieldsOf(memberOf(record, 'basics'))
  const place = fieldsOf(memberOf(basics, 'location'))
  return {
    lid: memberOf(record, 'lid'),
    urn: memberOf(record, 'urn'),
    url: profileUrl(basics, identifiers),
    observed_at: memberOf(record, 'observed_at'),
    deleted: memberOf(record, 'deleted'),
    ...namesOf(memberOf(basics, 'name')),
    headline: memberOf(basics, 'label'),
    about: memberOf(basics, 'summary'),
    skills: itemsOf(memberOf(record, 'skills')).map((skill) => memberOf(skill, 'name')),
    languages: itemsOf(memberOf(record, 'languages')).map((one) => ({ value: memberOf(one, 'language') })),
    address: {
      street: memberOf(place, 'address'),
      city: memberOf(place, 'city'),
      state: memberOf(place, 'region'),
      postal_code: memberOf(place, 'postalCode'),
      country_code: memberOf(place, 'countryCode'),
    },
    educations: itemsOf(memberOf(record, 'education')).map((one) => ({
      name: memberOf(one, 'institution'),
      degree: joined([memberOf(one, 'studyType'), memberOf(one, 'area')], ', '),
      startDate: memberOf(one, 'startDate'),
      endDate: memberOf(one, 'endDate'),
    })),
    employment_history: itemsOf(memberOf(record, 'work')).map((one) => ({
      title: memberOf(one, 'position'),
      description: joined([memberOf(one, 'summary'), ...itemsOf(memberOf(one, 'highlights'))], '\n'),
      startDate: memberOf(one, 'startDate'),
      endDate: memberOf(one, 'endDate'),
      location: memberOf(one, 'location'),
      company: { company_name: memberOf(one, 'name') },
    })),
    emails: itemsOf(memberOf(basics, 'email')),
    phone_numbers: itemsOf(memberOf(basics, 'phone')),
  }
}

/** The first word is the first name: if a source does not split the name, any split is a guess, and this one loses nothing. */
export const namesOf = (name: unknown): { firstname: string | null; lastname: string | null } => {
  const [firstname = null, ...rest] = (textOf(name) ?? '').split(/\s+/).filter((word) => word !== '')
  return { firstname, lastname: rest.length === 0 ? null : rest.join(' ') }
}

const joined = (parts: readonly unknown[], separator: string): string | null => {
  const texts = known(parts.map((part) => textOf(part, textBytesMax)))
  return texts.length === 0 ? null : texts.join(separator)
}

/** The address in the network's own domain, among the addresses a person gives. */
const profileUrl = (basics: Fields, identifiers: Identifiers): string | null => {
  const urls = [
    memberOf(basics, 'url'),
    ...itemsOf(memberOf(basics, 'profiles')).map((one) => memberOf(one, 'url')),
  ]
  return firstProfileUrl(urls, identifiers)
}

export const firstProfileUrl = (urls: readonly unknown[], identifiers: Identifiers): string | null =>
  urls
    .filter((url) => typeof url === 'string')
    .find((url) => url.includes('/') && identifiers.parse(url) !== null) ?? null
