import type { FastifyInstance } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { organizationsOf } from '../administration/ledgers/ledgers.ts'
import { reconcileLedgers } from '../administration/ledgers/reconcile.ts'
import { lastReconciliation, recordReconciled } from '../administration/ledgers/reconciliations.ts'
import { monthOf } from '../administration/months/statements.ts'
import { provedOperator } from '../administration/operator.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { monthAfter, monthStart } from '../billing/months.ts'
import { type Form, formOf } from './form.ts'
import { count } from './format.ts'
import { attemptOnce, type Dashboard, organizationPattern, sendPage, viewerOf } from './page.ts'
import { reconciledPage, reconcilePage } from './pages/reconcile.ts'
import { namesOf } from './queries.ts'
import { begin } from './work-routes.ts'

/** Log, read models and tariff compared on demand. Only a comparison of everything is recorded, like the nightly one. */

/** Throws `InputFault`. */
const wantedIn = (form: Form) => {
  const [organization, month] = [form.text('organization').trim(), form.text('month').trim()]
  if (organization !== '' && !organizationPattern.test(organization))
    throw new InputFault('organization', `"${organization}" is no id of an organization, such as org_01J…`)
  return {
    organization: organization === '' ? null : organization,
    month: month === '' ? null : monthOf('month', month),
  }
}

export const reconcileRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, logger } = context
  pages.get('/reconcile', async (request, reply) => {
    const last = await lastReconciliation(foundation.eventLog)
    return sendPage(
      reply,
      reconcilePage({ viewer: viewerOf(request, reply), last, typed: () => '', fault: null }),
    )
  })

  pages.post('/reconcile', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) => wantedIn(form))
    if ('fault' in outcome) {
      const last = await lastReconciliation(foundation.eventLog)
      const typed = formOf(request.body).text
      return sendPage(reply.code(422), reconcilePage({ viewer, last, typed, fault: outcome.fault }))
    }
    const { organization, month } = outcome.done
    return begin(context, reply, {
      key: `reconcile/${organization}/${month}`,
      title: 'Reconciling',
      run: async (progress) => {
        await catchUp(foundation, logger)
        const ledgers = await reconcileLedgers(foundation, {
          organizations: organization === null ? await organizationsOf(foundation) : [organization],
          ...(month === null
            ? {}
            : {
                range: {
                  fromMs: Date.parse(monthStart(month)),
                  toMs: Date.parse(monthStart(monthAfter(month))),
                },
              }),
          onProgress: (id, events) => progress(`${id}: ${count(events)} events are compared.`),
        })
        const whole = organization === null && month === null
        if (whole)
          await recordReconciled(foundation, ledgers, { whole: true, ...provedOperator(viewer.user) })
        const names = await namesOf(
          foundation.pool,
          ledgers.map(({ organizationId }) => organizationId),
        )
        return { page: (of) => reconciledPage({ viewer: of, ledgers, names, whole }) }
      },
    })
  })
}
