import type { FastifyInstance } from 'fastify'
import { type PixelDayPlace, pixelDaysOf, pixelHitsSince } from '../../projections/pixel-days.ts'
import { provedOperator } from '../administration/operator.ts'
import { type PixelChange, pixelChanges } from '../capabilities/index.ts'
import { type Form, formOf } from './form.ts'
import {
  accountAt,
  attemptOnce,
  type Dashboard,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { type PixelView, pixelPage } from './pages/pixel.ts'
import type { AccountRow } from './queries.ts'
import { rowsOf } from './queries.ts'

/** The pixel of one organization: what its keys do by calls, people do here. */

const path = '/organizations/:organization/pixel'
const rulesShown = 50
const daysShown = 50
const dayMs = 86_400_000
const figureDays = 30

export const pixelRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const query = formOf(request.query)
    const shown = { viewer: viewerOf(request, reply), query, typed: () => '', fault: null }
    return sendPage(reply, await pageOf(context, account, shown))
  })

  for (const kind of pixelChanges)
    pages.post<OrganizationParams>(`${path}/${kind}`, async (request, reply) => {
      const account = await accountAt(context, request.params.organization)
      const viewer = viewerOf(request, reply)
      const outcome = await attemptOnce(context, request, (form) =>
        context.pixel.change(
          account.organization_id,
          { kind, text: form.text },
          {
            ...provedOperator(viewer.user),
            once: `${viewer.user} ${form.text('once')}`,
            atMs: Date.now(),
          },
        ),
      )
      if ('done' in outcome)
        return reply.redirect(`/organizations/${account.organization_id}/pixel#rules`, 303)
      const { text: typed } = formOf(request.body)
      const fault = { ...outcome.fault, form: formOfChange[kind] }
      return sendPage(
        reply.code(422),
        await pageOf(context, account, { viewer, query: formOf({}), typed, fault }),
      )
    })
}

const formOfChange = {
  limit: 'limit',
  block: 'block',
  unlimit: 'other',
  unblock: 'other',
} as const satisfies Record<PixelChange, unknown>

type Shown = {
  readonly viewer: Viewer
  readonly query: Form
  readonly typed: (name: string) => string
  readonly fault: (FormFault & Pick<NonNullable<PixelView['fault']>, 'form'>) | null
}

const pageOf = async (
  { foundation: { pool }, pixel }: Dashboard,
  account: AccountRow,
  { query, ...shown }: Shown,
) => {
  const id = account.organization_id
  const atMs = Date.now()
  const [find, of] = [searched(query.text('find')), searched(query.text('of'))]
  const since = new Date(atMs - (figureDays - 1) * dayMs).toISOString().slice(0, 10)
  const [rules, [hits], days] = await Promise.all([
    pixel.rules(id, { search: find, after: query.text('after'), max: rulesShown, atMs }),
    rowsOf(pool, pixelHitsSince(id, since)),
    rowsOf(
      pool,
      pixelDaysOf(id, {
        domain: of === '' ? null : of,
        after: placeIn(query.text('until')),
        max: daysShown + 1,
      }),
    ),
  ])
  const last = days.length > daysShown ? days.at(daysShown - 1) : undefined
  return pixelPage({
    ...{ ...shown, account, rules, find, of },
    hits: hits ?? { fired: '0', refused: '0' },
    days: days.slice(0, daysShown),
    until: last === undefined ? null : `${last.day} ${last.domain}`,
  })
}

/** What no domain holds is not asked for: PostgreSQL refuses a text with U+0000. */
const searched = (text: string): string =>
  text
    .trim()
    .toLowerCase()
    .replaceAll(/[^a-z0-9.-]/g, '')
    .slice(0, 253)

const placePattern = /^(\d{4}-\d{2}-\d{2}) ([a-z0-9.-]{0,253})$/

/** Null for what is no place: then from the newest day on. */
const placeIn = (text: string): PixelDayPlace | null => {
  const [, day = '', domain = ''] = placePattern.exec(text) ?? []
  const atMs = Date.parse(`${day}T00:00:00.000Z`)
  // PostgreSQL refuses the 31st of June, which this takes for the 1st of July.
  return Number.isNaN(atMs) || new Date(atMs).toISOString().slice(0, 10) !== day ? null : { day, domain }
}
