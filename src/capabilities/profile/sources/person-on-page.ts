import type { JsonObject, ReadNodes } from '../../../egress/json-ld-nodes.ts'
import { createIdentifiers, type ProfileNetwork } from '../identifier.ts'
import { isFields, memberOf } from '../mapping/fields.ts'
import { type MappedProfile, mapProfile } from '../mapping/mapping.ts'
import { isSchemaOrgPerson } from '../mapping/schema-org.ts'

/**
 * The person a profile's page is about. Pure. Runs in the thread that parses the page (`json-ld.ts`), so a page built
 * to keep us busy holds up nothing else.
 */

/** The owner of the page, as far as its address shows it, and the form of its network's identifiers. */
export type PageOfPerson = { readonly lid: string | null; readonly network: ProfileNetwork }

/** A text describes the fault in the page. */
export type PersonOnPage = MappedProfile | string

export const read: ReadNodes<PageOfPerson, PersonOnPage> = (nodes, { lid, network }) => {
  const identifiers = createIdentifiers(network)
  const persons = nodes
    .flatMap(personsIn)
    .map((person) => mapProfile(person, identifiers))
    .filter((person) => person !== null)
  // Pages show other people too, who must be ignored.
  const meant = persons.find((person) => lid !== null && person.lid === lid) ?? persons[0]
  if (meant === undefined) return 'no person in the page'
  return persons.length > 1 && meant.lid === null ? 'several persons in the page' : meant
}

/** A person, or the person that a page names as its subject. */
const personsIn = (node: JsonObject): JsonObject[] =>
  [node, memberOf(node, 'mainEntity'), memberOf(node, 'about')]
    .filter((one) => isFields(one) && isSchemaOrgPerson(one))
    .filter(isFields)
