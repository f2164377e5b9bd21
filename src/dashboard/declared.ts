import { declarations } from '../administration/declarations.ts'
import { type Declared, type Given, isPersonal } from '../administration/declare.ts'
import type { Field } from '../administration/fields.ts'
import { type Action, mayDo } from '../administration/roles.ts'
import type { UserRole } from '../events/users.ts'
import type { Form } from './form.ts'

/** The URLs of commands and queries in the dashboard, and the values of their forms. */

/** `organization` is true if the path is below that of an organization, so that the form does not ask for the organization. */
export type Place = { readonly declared: Declared; readonly path: string; readonly organization: boolean }

const organizationPath = '/organizations/:organization'

const placesOf = (declared: Declared): Place[] => {
  if (!declared.interfaces.includes('dashboard')) return []
  const path = declared.name.replace(' ', '/')
  const field = declared.fields.find(({ control }) => control === 'organization')
  return [
    ...(field === undefined ? [] : [{ declared, path: `${organizationPath}/${path}`, organization: true }]),
    { declared, path: `/commands/${path}`, organization: false },
  ]
}

export const places: readonly Place[] = declarations.flatMap(placesOf)

/**
 * Whether a list can be downloaded in the dashboard. Paged lists, and lists that take a long time, can be exported only on the command line.
 */
export const hasCsv = ({ columns, paged, long, slow }: Declared): boolean =>
  columns !== undefined && paged !== true && long === undefined && slow !== true

/** Whether the form makes a change or begins long-running work when it is sent. */
export const isSent = ({ changes, long }: Declared): boolean => changes !== 'nothing' || long !== undefined

/** The action that each route of a command or query requires. */
export const actionOfPlace: Readonly<Record<string, Action>> = Object.fromEntries(
  places.flatMap(({ declared, path }) => [
    [`GET ${path}`, declared.action],
    ...(isSent(declared) || isPersonal(declared) ? [[`POST ${path}`, declared.action]] : []),
    ...(hasCsv(declared) ? [[`GET ${path}.csv`, declared.action]] : []),
    ...(declared.types === undefined ? [] : [[`GET ${path}/file`, declared.action]]),
  ]),
)

/**
 * The URL of a command or query with its form filled in, or of the file with these values; null if the dashboard does not offer the command
 * there or to this role.
 */
export const hrefOf = (
  { name, given = {} }: { readonly name: string; readonly given?: Given | undefined },
  { role, organizationId }: { readonly role: UserRole; readonly organizationId: string | null },
): string | null => {
  const offered = places.filter(
    ({ declared, organization }) =>
      declared.name === name &&
      mayDo(role, declared.action) &&
      (organization ? organizationId !== null : role !== 'partner'),
  )
  const place = offered.find(({ organization }) => organization) ?? offered[0]
  if (place === undefined) return null
  const values = askedFields(place).flatMap(({ name: field, flag }): [string, string][] => {
    const value = given[field]
    return value === undefined ? [] : [[flag, value === true ? 'on' : String(value)]]
  })
  const path = place.path.replace(':organization', organizationId ?? '')
  if (values.length === 0) return path
  return `${path}${place.declared.types === undefined ? '' : '/file'}?${query(Object.fromEntries(values))}`
}

const query = (values: Readonly<Record<string, string>>): string => new URLSearchParams(values).toString()

/** The address of the page of an event, which only some roles may open. */
export const eventHref = ({ stream, revision }: { readonly stream: string; readonly revision: number }) =>
  `/commands/event-log/show?${query({ stream, revision: String(revision) })}`

export const streamHref = (stream: string) => `/commands/event-log/list?${query({ stream })}`

/**
 * The fields of a form. A form below an organization has no fields for one or all organizations. Optional documents come last, because few
 * people write JSON.
 */
export const askedFields = ({ declared: { fields }, organization }: Place): readonly Field[] =>
  fields
    .filter(
      ({ control, name }) =>
        control !== 'file' && !(organization && (control === 'organization' || name === 'all')),
    )
    .toSorted((one, other) => Number(isExtra(one)) - Number(isExtra(other)))

const isExtra = ({ control, required }: Field): boolean => control === 'document' && !required

/** The values from a form, without empty fields. If boxes are ticked by default, a form without a ticked box is also a choice. */
export const givenIn = (place: Place, form: Form, organizationId: string | null): Given => {
  const scope = place.declared.fields.find(({ control }) => control === 'organization')
  return Object.fromEntries([
    ...(organizationId !== null && scope !== undefined ? [[scope.name, organizationId] as const] : []),
    ...askedFields(place).flatMap((field): [string, unknown][] => {
      const { name, flag, control, byDefault } = field
      const value = form.list(flag).join(',')
      const isChoice = control === 'choices' && byDefault !== undefined
      return value.trim() === '' && !isChoice ? [] : [[name, value]]
    }),
  ])
}
