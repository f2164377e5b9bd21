import { z } from 'zod'
import { type Fields, itemsOf, memberOf } from './fields.ts'

/**
 * A mapping that an operator declares for a source with another format. It contains the place in the source for each of our members.
 *
 * A place is a dotted path (`person.names.0.first`), or `.` for the whole document. A list is declared as the path to a list in our own
 * format, or as `{"path": "jobs", "fields": {"title": "role", "company.company_name": "employer.name"}}`, where the fields are paths within
 * each item.
 */
const path = z.string().regex(/^(\.|[^.]{1,100}(\.[^.]{1,100}){0,9})$/, 'a dotted path such as person.name')

const listOf = <Name extends string>(names: readonly [Name, ...Name[]]) =>
  z.union([path, z.strictObject({ path, fields: z.partialRecord(z.enum(names), path) })])

const contact = ['value', 'sub_type'] as const

const declaration = z.strictObject({
  /** The place of the person in the body. All other paths start there. */
  root: path.optional(),
  lid: path.optional(),
  urn: path.optional(),
  url: path.optional(),
  former_lids: path.optional(),
  deleted: path.optional(),
  observed_at: path.optional(),
  firstname: path.optional(),
  lastname: path.optional(),
  numOfConnections: path.optional(),
  headline: path.optional(),
  about: path.optional(),
  skills: path.optional(),
  languages: listOf(['value', 'norm']).optional(),
  address: z
    .union([
      path,
      z.strictObject({
        path: path.optional(),
        fields: z.partialRecord(
          z.enum(['street', 'city', 'state', 'postal_code', 'country', 'country_code']),
          path,
        ),
      }),
    ])
    .optional(),
  educations: listOf(['urn', 'name', 'degree', 'startDate', 'endDate']).optional(),
  employment_history: listOf([
    'title',
    'description',
    'startDate',
    'endDate',
    'location',
    'is_current',
    'company',
    'company.lid',
    'company.company_name',
    'company.urn',
  ]).optional(),
  emails: listOf(contact).optional(),
  phone_numbers: listOf(contact).optional(),
})

export type Rewrite = (body: unknown) => Fields

/** Throws a TypeError that describes the fault in the declaration. */
export const declaredMapping = (declared: unknown): Rewrite => {
  const parsed = declaration.safeParse(declared)
  if (!parsed.success) throw new TypeError(z.prettifyError(parsed.error))
  const { root = '.', address, ...members } = parsed.data
  if (members.lid === undefined && members.url === undefined)
    throw new TypeError('map lid or url, because an answer is used only if it identifies its person')
  return (body) => {
    const record = at(body, root)
    return {
      ...Object.fromEntries(
        Object.entries(members).map(([name, place]) => [
          name,
          typeof place === 'string' ? at(record, place) : place && listAt(record, place),
        ]),
      ),
      address:
        typeof address === 'object'
          ? rewritten(at(record, address.path ?? '.'), address.fields)
          : address && at(record, address),
    }
  }
}

type Paths = Readonly<Record<string, string | undefined>>

const listAt = (record: unknown, { path, fields }: { path: string; fields: Paths }): Fields[] =>
  itemsOf(at(record, path)).map((item) => rewritten(item, fields))

const rewritten = (item: unknown, fields: Paths): Fields => {
  const found: Record<string, unknown> = {}
  const company: Record<string, unknown> = {}
  for (const [name, place] of Object.entries(fields)) {
    const value = at(item, place ?? '.')
    const [, within] = name.split('company.')
    if (within === undefined) found[name] = value
    else company[within] = value
  }
  return Object.keys(company).length === 0 ? found : { ...found, company }
}

const at = (value: unknown, place: string): unknown =>
  place === '.' ? value : place.split('.').reduce(step, value)

/** Returns a member of an object (but no inherited one), or an item of a list by its number. */
const step = (value: unknown, name: string): unknown =>
  Array.isArray(value) ? (/^\d{1,3}$/.test(name) ? value[Number(name)] : undefined) : memberOf(value, name)
