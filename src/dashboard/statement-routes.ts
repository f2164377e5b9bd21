import type { FastifyInstance } from 'fastify'
import { capability } from '../events/capabilities.ts'
import { type Form, formOf } from './form.ts'
import { linePlaces } from './line-places.ts'
import {
  accountAt,
  type Dashboard,
  keyIdPattern,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import { lineKinds, lineOutcomes, statementPage } from './pages/statement.ts'
import { keysOf, type LineFilters, linesThatFit, rowsOf } from './queries.ts'

/** The statement with filters, one page of lines at a time. */

const pageLines = 50
/** The most revisions that are searched for one page, whether or not their lines match. */
const lookedMax = 200_000n
const keysMax = 200
const dayMs = 86_400_000
const always = { fromMs: Date.parse('0001-01-01'), untilMs: Date.parse('9999-12-31') }

/** The start of a day; null if the text is not an existing day. */
const dayMsOf = (text: string): number | null => {
  const ms = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(text) ? null : ms
}

const oneOf = (text: string, known: readonly string[]): string | null => (known.includes(text) ? text : null)

const filtersIn = (form: Form): LineFilters => {
  const to = dayMsOf(form.text('to'))
  const key = form.text('key')
  return {
    kind: oneOf(form.text('kind'), lineKinds),
    keyId: keyIdPattern.test(key) ? key : null,
    capability: oneOf(form.text('capability'), capability.options),
    outcome: oneOf(form.text('outcome'), lineOutcomes),
    fromMs: dayMsOf(form.text('from')) ?? always.fromMs,
    untilMs: to === null ? always.untilMs : to + dayMs,
  }
}

export const statementRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation
  pages.get<OrganizationParams>('/organizations/:organization/statement', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const form = formOf(request.query)
    const filters = filtersIn(form)
    const isBounded = filters.fromMs !== always.fromMs || filters.untilMs !== always.untilMs
    const [keys, places] = await Promise.all([
      rowsOf(pool, keysOf(id, { max: keysMax, nowMs: Date.now() })),
      isBounded ? linePlaces(pool, id, filters) : null,
    ])
    const last = places === null ? BigInt(account.revision) : BigInt(places.last)
    const before = form.text('before')
    const below = /^\d{1,15}$/.test(before) ? BigInt(before) : last + 1n
    const first = places === null ? 0n : BigInt(places.first)
    const above = below - lookedMax > first ? below - lookedMax : first
    const found = await rowsOf(
      pool,
      linesThatFit(id, { above: String(above - 1n), below: String(below), max: pageLines + 1 }, filters),
    )
    const lines = found.slice(0, pageLines)
    const older =
      found.length > pageLines ? (lines.at(-1)?.revision ?? null) : above > first ? String(above) : null
    return sendPage(
      reply,
      statementPage({ viewer: viewerOf(request, reply), account, typed: form, keys, lines, older }),
    )
  })
}
