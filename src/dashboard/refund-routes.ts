import type { FastifyInstance } from 'fastify'
import { refund } from '../administration/credits/refunds.ts'
import { amountOf, labelOf } from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import { formatCredits } from '../billing/money.ts'
import { explainedCall } from './call-routes.ts'
import { referenceIn } from './credit-routes.ts'
import { type Form, formOf } from './form.ts'
import { count } from './format.ts'
import {
  accountAt,
  attempt,
  attemptOnce,
  type CallParams,
  type Dashboard,
  sendPage,
  viewerOf,
} from './page.ts'
import type { Viewer } from './pages/layout.ts'
import { refundConfirmPage, refundedBeforePage, refundPage } from './pages/refund.ts'
import type { AccountRow } from './queries.ts'
import { shownSoon } from './shown-soon.ts'
import { begin } from './work-routes.ts'

/** A refund in three steps: the request, its preview, and the refund. */

const path = '/organizations/:organization/calls/:request/refund'

const wanted = (form: Form) => ({
  amount: amountOf('amount', form.text('amount'), { zero: false }),
  reason: labelOf('reason', form.text('reason')),
  reference: referenceIn(form),
})

/** The result of a work whose reference names a refund that is already in the ledger. */
const before = (
  view: { readonly account: AccountRow; readonly requestId: string },
  reference: string | undefined,
  amount: string,
) => ({
  page: (viewer: Viewer) => refundedBeforePage({ viewer, ...view, amount, reference: reference ?? '' }),
})

export const refundRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  pages.get<CallParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const call = await explainedCall(context, request.params)
    const view = { viewer: viewerOf(request, reply), account, requestId: call.request_id, cost: call.cost }
    return sendPage(
      reply,
      refundPage({ ...view, fault: null, amount: call.cost.now, reference: '', reason: '' }),
    )
  })

  pages.post<CallParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const call = await explainedCall(context, request.params)
    const { organization_id: organizationId } = account
    const viewer = viewerOf(request, reply)
    const form = formOf(request.body)
    const view = { account, requestId: call.request_id }
    const asked = await attempt(async () => wanted(form))
    if ('fault' in asked) {
      const typed = {
        amount: form.text('amount'),
        reference: form.text('reference'),
        reason: form.text('reason'),
      }
      return sendPage(
        reply.code(422),
        refundPage({ viewer, ...view, cost: call.cost, fault: asked.fault, ...typed }),
      )
    }
    const { amount, reason, reference } = asked.done
    return begin(context, reply, {
      key: `refund?/${viewer.once}`,
      title: 'What a refund will do',
      run: async (progress) => {
        const { costs, balance, adjusted, already } = await refund(foundation, {
          requestId: call.request_id,
          organizationId,
          amount,
          reason,
          reference,
          dryRun: true,
          ...provedOperator(viewer.user),
          onProgress: (events) => progress(`${count(events)} events since the call are read.`),
        })
        if (already) return before(view, reference, adjusted.amount)
        return {
          page: (of) =>
            refundConfirmPage({
              viewer: of,
              ...view,
              reason,
              fills: adjusted.fills,
              amount: formatCredits(amount),
              reference: reference ?? '',
              costs: formatCredits(costs),
              balance: formatCredits(balance),
            }),
        }
      },
    })
  })

  pages.post<CallParams>(`${path}/confirmed`, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const { user, once } = viewerOf(request, reply)
    const call = await explainedCall(context, request.params)
    const asked = await attemptOnce(context, request, async (form) => wanted(form))
    if ('fault' in asked) return reply.redirect(`${request.url.replace(/\/confirmed$/, '')}`, 303)
    return begin(context, reply, {
      key: `refund/${once}`,
      title: 'Refunding a call',
      run: async (progress) => {
        const { already, adjusted } = await refund(foundation, {
          requestId: call.request_id,
          organizationId: account.organization_id,
          dryRun: false,
          ...asked.done,
          ...provedOperator(user),
          onProgress: (events) => progress(`${count(events)} events since the call are read.`),
        })
        const { reference } = asked.done
        if (already) return before({ account, requestId: call.request_id }, reference, adjusted.amount)
        await shownSoon(context, ['accounts', 'ledger_lines', 'ledger_index'])
        return { href: `/organizations/${account.organization_id}/calls/${call.request_id}` }
      },
    })
  })
}
