import type { FastifyInstance } from 'fastify'
import type pg from 'pg'
import type { Picks } from '../administration/fields.ts'
import { InputFault, labelOf } from '../administration/input.ts'
import { askedFields, type Place } from './declared.ts'
import { type Form, formOf } from './form.ts'
import type { Html } from './html.ts'
import {
  type Dashboard,
  type OrganizationParams,
  organizationPattern,
  PageMissing,
  sendPart,
} from './page.ts'
import { type Choice, choiceOptions, suggested } from './pages/choices.ts'

/**
 * In forms, people choose organizations, keys and users by name or id. Scripts suggest names while a person types. The server looks up the
 * name when the form is sent, and refuses a name that is not whole or that several have.
 */

export const choicesMax = 20

type Searched = {
  readonly kind: Picks
  /** The organizations to which results are restricted; null for all organizations. */
  readonly organizationIds: readonly string[] | null
}

/** `$1`: the organizations to search, or null for all. */
const sources: Readonly<Record<Picks, string>> = {
  organizations: `select organization_id as id, name, '' as about, organization_id from accounts
                   where registered_at is not null and ($1::text[] is null or organization_id = any ($1))`,
  keys: `select key_id as id, name,
                organization_name || case when revoked_at is null then '' else ', revoked' end as about, organization_id
           from api_keys where $1::text[] is null or organization_id = any ($1)`,
  users: `select name as id, name, role || case when disabled_at is null then '' else ', disabled' end as about, organization_id
            from users where $1::text[] is null or organization_id = any ($1)`,
}

/** The first choices with a name that contains `text` or an id that begins with `text`, ordered by name. `more`: there are others. */
export const choicesNamed = async (
  pool: pg.Pool,
  { kind, organizationIds, text }: Searched & { readonly text: string },
): Promise<{ readonly found: readonly Choice[]; readonly more: boolean }> => {
  const { rows } = await pool.query<Choice>(
    `with one as not materialized (${sources[kind]})
     select id, name, about, organization_id from one
      where position(lower($2) in lower(name)) > 0 or starts_with(id, $2)
      order by lower(name), id limit $3`,
    [organizationIds, text, choicesMax + 1],
  )
  return { found: rows.slice(0, choicesMax), more: rows.length > choicesMax }
}

/** Choices with exactly this id or, regardless of case, this name; at most two. */
const exactly = async (
  pool: pg.Pool,
  { kind, organizationIds }: Searched,
  text: string,
): Promise<Choice[]> => {
  const { rows } = await pool.query<Choice>(
    `with one as (${sources[kind]})
     select id, name, about, organization_id from one
      where id = $2 or lower(name) = lower($2)
      order by id = $2 desc limit 2`,
    [organizationIds, text],
  )
  return rows[0]?.id === text ? rows.slice(0, 1) : rows
}

const suggestedForm = /^.* \(([0-9A-Za-z_]{1,64})\)$/

/** At most two choices that a string identifies exactly: by id, by name, or by the text of a suggestion. */
export const choicesMeant = async (pool: pg.Pool, searched: Searched, text: string): Promise<Choice[]> => {
  const [, idSuggested] = suggestedForm.exec(text) ?? []
  const [one] = idSuggested === undefined ? [] : await exactly(pool, searched, idSuggested)
  return one !== undefined && suggested(one) === text ? [one] : exactly(pool, searched, text)
}

/** Strings that look like an id. The command checks whether an id without a row exists, because rows can be late. */
const ids: Readonly<Record<Picks, { readonly always: RegExp; readonly unlessNamed: RegExp }>> = {
  organizations: { always: /^org_/, unlessNamed: /^org_/ },
  keys: { always: /^enl_/, unlessNamed: /^[0-9A-Za-z]{16}$/ },
  users: { always: /^$/, unlessNamed: /./ },
}
const nouns: Readonly<Record<Picks, string>> = { organizations: 'organization', keys: 'key', users: 'user' }

/** The id that a text means. Throws `InputFault` if the text is not exactly one name or id. */
const idOf = async (
  pool: pg.Pool,
  searched: Searched,
  { flag, typed }: { readonly flag: string; readonly typed: string },
): Promise<string> => {
  const { always, unlessNamed } = ids[searched.kind]
  if (always.test(typed)) return typed
  const text = labelOf(flag, typed)
  const [same, ...others] = await choicesMeant(pool, searched, text)
  if (same !== undefined && others.length === 0) return same.id
  const { found, more } = await choicesNamed(pool, { ...searched, text })
  if (found.length === 0 && unlessNamed.test(text)) return text
  const noun = nouns[searched.kind]
  if (found.length === 0)
    throw new InputFault(flag, `no ${noun} has "${text}" in its name; type its name or its id`)
  const names = [...found.map(suggested), ...(more ? ['…'] : [])].join(', ')
  const why =
    same === undefined
      ? `"${text}" is not the whole name of one ${noun}`
      : `more than one ${noun} has the name "${text}"`
  throw new InputFault(flag, `${why}; choose one of these: ${names}`)
}

/** The id of the organization that a filter names by its id or its name; null for an empty filter. Throws `InputFault` about `flag`. */
export const organizationMeant = async (
  pool: pg.Pool,
  flag: string,
  typed: string,
): Promise<string | null> => {
  if (typed === '' || organizationPattern.test(typed)) return typed || null
  return idOf(pool, { kind: 'organizations', organizationIds: null }, { flag, typed })
}

type At = { readonly place: Place; readonly account: { readonly organization_id: string } | null }

/** Replaces the names in a form with ids. Throws `InputFault` if a name matches no choice or several choices. */
export const withIds = async (
  { foundation: { pool } }: Pick<Dashboard, 'foundation'>,
  { place, account }: At,
  form: Form,
): Promise<Form> => {
  const found = new Map<string, string>()
  // The organization comes first, because keys are searched within the organization.
  const fields = askedFields(place).toSorted(
    (one, other) => Number(other.picks === 'organizations') - Number(one.picks === 'organizations'),
  )
  let of = account === null ? null : [account.organization_id]
  for (const { flag, picks, control } of fields) {
    const typed = form.text(flag).trim()
    if (picks === undefined || typed === '') continue
    const id = await idOf(pool, { kind: picks, organizationIds: of }, { flag, typed })
    found.set(flag, id)
    if (control === 'organization') of = [id]
  }
  const list = (name: string): string[] => {
    const id = found.get(name)
    return id === undefined ? form.list(name) : [id]
  }
  return { ...form, list, text: (name) => list(name)[0] ?? '' }
}

/** The names behind the ids in a form, with the labels of their fields, so that a plan is not only about ids. */
export const namesIn = async (
  { foundation: { pool } }: Pick<Dashboard, 'foundation'>,
  place: Place,
  form: Form,
): Promise<readonly (readonly [label: string, name: string])[]> => {
  const named = await Promise.all(
    askedFields(place).map(async ({ flag, label, picks }) => {
      const id = form.text(flag)
      if (picks === undefined || id === '') return []
      const [one] = await exactly(pool, { kind: picks, organizationIds: null }, id)
      return one?.id === id && one.name !== id ? [[label, suggested(one)] as const] : []
    }),
  )
  return named.flat()
}

/** Sends suggestions while a person types. The URL names the field. */
export const pickRoutes = (pages: FastifyInstance, { foundation: { pool } }: Dashboard): void => {
  const answer = async (searched: Searched, query: unknown): Promise<Html> => {
    const form = formOf(query)
    const text = form.text(form.text('field')).trim().slice(0, 200)
    // PostgreSQL refuses a string with U+0000, and no name contains this character.
    if (text.includes('\0')) return choiceOptions({ found: [] })
    return choiceOptions(await choicesNamed(pool, { ...searched, text }))
  }
  for (const kind of ['organizations', 'keys', 'users'] as const)
    pages.get(`/pick/${kind}`, async (request, reply) => {
      const of = formOf(request.query).text('org').trim()
      const id = suggestedForm.exec(of)?.[1] ?? of
      const organizationIds = kind === 'keys' && organizationPattern.test(id) ? [id] : null
      return sendPart(reply, await answer({ kind, organizationIds }, request.query))
    })
  pages.get<OrganizationParams>('/organizations/:organization/pick/keys', async (request, reply) => {
    const { organization } = request.params
    if (!organizationPattern.test(organization)) throw new PageMissing()
    const organizationIds = [organization]
    return sendPart(reply, await answer({ kind: 'keys', organizationIds }, request.query))
  })
}
