import type { FastifyInstance } from 'fastify'
import { InputFault, instantOf, labelOf } from '../administration/input.ts'
import { monthOf } from '../administration/months/statements.ts'
import { provedOperator } from '../administration/operator.ts'
import { organizationIds } from '../administration/organizations/organizations.ts'
import { comparePrices, lastMonth } from '../administration/prices/price-diff.ts'
import { priceRulesOf } from '../administration/prices/price-file.ts'
import {
  namedPrices,
  type PriceName,
  priceNameOf,
  pricesAt,
  proposalAt,
  proposePriceBook,
  withdrawPrices,
} from '../administration/prices/prices.ts'
import { payingOf } from '../events/test-organization.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { type Form, formOf } from './form.ts'
import { count } from './format.ts'
import { attemptOnce, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { costPage, costsShownMax, proposePage, withdrawPage } from './pages/price-forms.ts'
import { namesOf } from './queries.ts'
import { soonOr } from './work-routes.ts'

/** Proposing and withdrawing prices, and trying them on the calls of a month. */

type NameParams = { Params: { name: string } }

export const priceFormRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  proposeRoutes(pages, context)
  withdrawRoutes(pages, context)
  costRoute(pages, context)
}

/** The differences from the book then in force, in the format of a price file. */
const changedIn = (form: Form, rules: readonly { rule: string; sku: string | null }[]) =>
  rules.flatMap(({ rule, sku }) => {
    const amount = form.text(`amount ${rule}`).trim()
    return sku === null || amount === '' ? [] : [{ rule, amount }]
  })

const proposeRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  const rulesNow = async () => (await pricesAt(foundation, Date.now())).inForce?.rules ?? []

  pages.get('/prices/new', async (request, reply) =>
    sendPage(
      reply,
      proposePage({
        viewer: viewerOf(request, reply),
        rules: await rulesNow(),
        typed: () => '',
        fault: null,
      }),
    ),
  )

  pages.post('/prices/new', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const rules = await rulesNow()
    const outcome = await attemptOnce(context, request, (form) =>
      proposePriceBook(foundation, {
        rulesOver: (base) => priceRulesOf(changedIn(form, rules), { named: 'the form', base }),
        effectiveFrom: instantOf('from', form.text('from')),
        reason: labelOf('reason', form.text('reason')),
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome) {
      const typed = formOf(request.body).text
      return sendPage(reply.code(422), proposePage({ viewer, rules, typed, fault: outcome.fault }))
    }
    return reply.redirect(`/prices/p${outcome.done.proposal}`, 303)
  })
}

const withdrawRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, twoPerson } = context
  const named = async (text: string) => {
    const name = priceNameOf(text)
    if (name === null) throw new PageMissing()
    const found = await namedPrices(foundation, name).catch((error: unknown) => {
      throw error instanceof CommandRefused ? new PageMissing() : error
    })
    return { name, view: { name: text, what: whatOf(name), from: found.effective_from } }
  }

  pages.get<NameParams>('/prices/:name/withdraw', async (request, reply) => {
    const { view } = await named(request.params.name)
    return sendPage(
      reply,
      withdrawPage({ viewer: viewerOf(request, reply), ...view, reason: '', fault: null }),
    )
  })

  pages.post<NameParams>('/prices/:name/withdraw', async (request, reply) => {
    const { name, view } = await named(request.params.name)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) =>
      withdrawPrices(foundation, {
        name,
        twoPerson,
        reason: labelOf('reason', form.text('reason')),
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome) {
      const reason = formOf(request.body).text('reason')
      return sendPage(reply.code(422), withdrawPage({ viewer, ...view, reason, fault: outcome.fault }))
    }
    return reply.redirect('/prices', 303)
  })
}

const whatOf = ({ kind, number }: PriceName): string =>
  kind === 'proposal' ? `proposal p${number}` : `price book ${number}`

const costRoute = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, logger } = context
  pages.get<NameParams>('/prices/:name/cost', async (request, reply) => {
    const name = priceNameOf(request.params.name)
    const found = name?.kind === 'proposal' ? await proposalAt(foundation, name.number, Date.now()) : null
    if (found === null) throw new PageMissing()
    const { proposal } = found
    const text = formOf(request.query).text('month')
    const month = text === '' ? lastMonth(Date.now()) : monthOf('month', text)
    if (Date.parse(`${month}-01`) > Date.now()) throw new InputFault('month', `${month} has not begun`)
    const base = await baseOf(context, proposal.base)
    const outcome = await soonOr(context, {
      request,
      reply,
      key: `cost/${proposal.proposal}/${month}`,
      title: `What ${month} would have cost under p${proposal.proposal}`,
      run: async (progress) =>
        comparePrices(foundation, {
          from: base,
          to: { name: `p${proposal.proposal}`, rules: proposal.rules },
          month,
          organizations: payingOf(await organizationIds(foundation, logger)),
          onProgress: (organization, calls) => progress(`${organization}: ${count(calls)} calls are rated.`),
        }),
    })
    if ('sent' in outcome) return outcome.sent
    const shown = outcome.result.organizations.slice(0, costsShownMax)
    const names = await namesOf(
      foundation.pool,
      shown.map(({ organizationId }) => organizationId),
    )
    return sendPage(
      reply,
      costPage(viewerOf(request, reply), {
        proposal: proposal.proposal,
        base: base.name,
        month,
        names,
        ...outcome.result,
      }),
    )
  })
}

const baseOf = async ({ foundation }: Dashboard, version: number | null) => {
  if (version === null) return { name: 'no prices', rules: [] }
  const { rules } = await namedPrices(foundation, { kind: 'book', number: version })
  return { name: `price book ${version}`, rules }
}
