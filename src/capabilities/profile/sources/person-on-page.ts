import type { JsonObject, ReadNodes } from '../../../egress/json-ld-nodes.ts'
import { createIdentifiers, type ProfileNetwork } from '../identifier.ts'
import { isFields, memberOf } from '../mapping/fields.ts'
import { type MappedProfile, mapProfile } from '../mapping/mapping.ts'
import { isSchemaOrgPerson } from '../mapping/schema-org.ts'

/**
 * The person a profile's page is about. Pure; runs in the thread that parses the page (`json-ld.ts`), where a page built
 * to keep us busy holds up nothing else.
 */

/** Whose page it is, as far as its address says, and how its network's identifiers look. */
export type PageOfPerson = { readonly lid: string | null; readonly network: ProfileNetwork }

/** A text says what is wrong with the page. */
export type PersonOnPage = MappedProfile | string

export const read: ReadNodes<PageOfPerson, PersonOnPage> = (nodes, { lid, network }) => {
  const identifiers = createIdentifiers(network)
  const persons = nodes
    .flatMap(personsIn)
    .map((person) => mapProfile(person, identifiers))
    .filter((person) => person !== null)
  // Pages show other people too, who are not meant.
  const meant = persons.find((person) => lid !== null && person.lid === lid) ?? persons[0]
  if (meant === undefined) return 'no person in the page'
  return persons.length > 1 && meant.lid === null ? 'several persons in the page' : meant
}

/** A person, or the person a page says it is about. */
const personsIn = (node: JsonObject): JsonObject[] =>
  [node, memberOf(node, 'mainEntity'), memberOf(node, 'about')]
    .filter((one) => isFields(one) && isSchemaOrgPerson(one))
    .filter(isFields)
