import type { FastifyInstance } from 'fastify'
import { thresholdOf } from '../../projections/ledger-index.ts'
import { adjust, setThreshold } from '../administration/credits/corrections.ts'
import { grant, grantOnce, previewGrant } from '../administration/credits/credits.ts'
import {
  amountOf,
  expiryOf,
  futureExpiryOf,
  labelOf,
  signedAmountOf,
  wholeNumber,
} from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import { formatCredits, parseCredits } from '../billing/money.ts'
import { type Form, formOf } from './form.ts'
import type { Html } from './html.ts'
import {
  accountAt,
  attempt,
  attemptOnce,
  type Dashboard,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import {
  adjustConfirmPage,
  adjustPage,
  type CreditFormView,
  type CreditView,
  grantConfirmPage,
  grantPage,
  movedBeforePage,
  thresholdConfirmPage,
  thresholdPage,
} from './pages/credits.ts'
import { rowsOf } from './queries.ts'
import { shownSoon } from './shown-soon.ts'

/** Moving credits by hand in three steps: the request, its preview, and the change, which a form makes once. */

type Act<Asked> = {
  readonly name: 'grant' | 'adjust' | 'threshold'
  /** The initial values of the form. */
  readonly fresh: Form
  /** Throws `InputFault`. */
  readonly wanted: (form: Form) => Asked
  readonly page: (view: CreditFormView) => Promise<Html>
  /** The preview. Writes nothing, and throws as the change would. */
  readonly confirm: (view: CreditView, asked: Asked) => Promise<Html>
  /** Null: done. A page: why nothing was written. */
  readonly perform: (view: CreditView, asked: Asked) => Promise<Html | null>
  /** The page of the organization that shows the result. */
  readonly leadsTo: string
}

export const creditRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  actRoutes(pages, context, granting(context))
  actRoutes(pages, context, adjusting(context))
  actRoutes(pages, context, threshold(context))
}

const actRoutes = <Asked>(pages: FastifyInstance, context: Dashboard, act: Act<Asked>): void => {
  const path = `/organizations/:organization/credits/${act.name}`

  pages.get<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const viewer = viewerOf(request, reply)
    return sendPage(reply, await act.page({ viewer, account, typed: act.fresh, fault: null }))
  })

  pages.post<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const view = { viewer: viewerOf(request, reply), account }
    const typed = formOf(request.body)
    const outcome = await attempt(async () => act.confirm(view, act.wanted(typed)))
    if ('done' in outcome) return sendPage(reply, outcome.done)
    return sendPage(reply.code(422), await act.page({ ...view, typed, fault: outcome.fault }))
  })

  pages.post<OrganizationParams>(`${path}/confirmed`, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const view = { viewer: viewerOf(request, reply), account }
    const outcome = await attemptOnce(context, request, async (form) => act.perform(view, act.wanted(form)))
    if ('fault' in outcome) {
      const typed = formOf(request.body)
      return sendPage(reply.code(422), await act.page({ ...view, typed, fault: outcome.fault }))
    }
    if (outcome.done !== null) return sendPage(reply.code(409), outcome.done)
    await shownSoon(context, ['accounts', 'ledger_lines', 'ledger_index'])
    return reply.redirect(`/organizations/${account.organization_id}${act.leadsTo}`, 303)
  })
}

export const referenceIn = (form: Form): string | undefined =>
  form.text('reference').trim() === '' ? undefined : labelOf('reference', form.text('reference'))

const grantIn = (form: Form) => {
  const expiry = form.text('expires-at').trim()
  const reference = referenceIn(form)
  // A lot under a reference may have been granted before it expired.
  const expires = (): string =>
    reference === undefined
      ? futureExpiryOf('expires-at', expiry, Date.now())
      : expiryOf('expires-at', expiry)
  return {
    amount: amountOf('amount', form.text('amount').trim(), { zero: false }),
    priority: wholeNumber('priority', form.text('priority'), { min: 0, max: 1000 }),
    expiresAt: expiry === '' ? null : expires(),
    reason: labelOf('reason', form.text('reason')),
    reference,
  }
}

const granting = ({ foundation }: Dashboard): Act<ReturnType<typeof grantIn>> => {
  const requestOf = (
    { viewer, account }: CreditView,
    { reference, ...asked }: ReturnType<typeof grantIn>,
  ) => ({
    ...asked,
    organizationId: account.organization_id,
    ...provedOperator(viewer.user),
    ...(reference === undefined ? {} : { reference }),
  })
  return {
    name: 'grant',
    fresh: formOf({ priority: '100' }),
    wanted: grantIn,
    page: async (view) => grantPage(view),
    confirm: async (view, asked) => {
      const { events, balanceBefore, balanceAfter, already } = await previewGrant(
        foundation,
        requestOf(view, asked),
      )
      const { reference, expiresAt, priority, reason } = asked
      const amount = formatCredits(asked.amount)
      if (already) return movedBeforePage({ ...view, what: 'Granted', reference: reference ?? '', amount })
      const [event] = events
      if (event?.type !== 'CreditGranted') throw new Error(`a grant came to ${event?.type ?? 'nothing'}`)
      return grantConfirmPage({
        ...view,
        before: balanceBefore,
        after: balanceAfter,
        granted: { ...event.data, reference: reference ?? null },
        hidden: {
          amount,
          reason,
          priority: String(priority),
          'expires-at': expiresAt ?? '',
          reference: reference ?? '',
        },
      })
    },
    perform: async (view, asked) => {
      const { reference, ...request } = requestOf(view, asked)
      if (reference === undefined) {
        await grant(foundation, request)
        return null
      }
      const { already, granted } = await grantOnce(foundation, { ...request, reference })
      return already ? movedBeforePage({ ...view, what: 'Granted', reference, amount: granted.amount }) : null
    },
    leadsTo: '/lots',
  }
}

const adjustmentIn = (form: Form) => ({
  amount: signedAmountOf('amount', form.text('amount').trim()),
  reason: labelOf('reason', form.text('reason')),
  reference: referenceIn(form),
})

const adjusting = ({ foundation }: Dashboard): Act<ReturnType<typeof adjustmentIn>> => {
  const adjusted = (
    { viewer, account }: CreditView,
    asked: ReturnType<typeof adjustmentIn> & { readonly dryRun: boolean },
  ) =>
    adjust(foundation, {
      organizationId: account.organization_id,
      ...asked,
      ...provedOperator(viewer.user),
    })
  return {
    name: 'adjust',
    fresh: formOf({}),
    wanted: adjustmentIn,
    page: async (view) => adjustPage(view),
    confirm: async (view, asked) => {
      const would = await adjusted(view, { ...asked, dryRun: true })
      const { reference = '', reason } = asked
      const amount = formatCredits(asked.amount)
      if (would.already) return movedBeforePage({ ...view, what: 'Adjusted', reference, amount })
      return adjustConfirmPage({
        ...view,
        before: would.balance - parseCredits(would.adjusted.amount),
        after: would.balance,
        adjusted: would.adjusted,
        hidden: { amount, reason, reference },
      })
    },
    perform: async (view, asked) => {
      const { already } = await adjusted(view, { ...asked, dryRun: false })
      const { reference = '' } = asked
      const amount = formatCredits(asked.amount)
      return already ? movedBeforePage({ ...view, what: 'Adjusted', reference, amount }) : null
    },
    leadsTo: '/lots',
  }
}

const thresholdIn = (form: Form) => {
  const amount = form.text('amount').trim()
  return { amount: amount === '' ? null : amountOf('amount', amount, { zero: true }) }
}

const threshold = ({ foundation }: Dashboard): Act<ReturnType<typeof thresholdIn>> => {
  const nowOf = async ({ account }: CreditView): Promise<string | null> =>
    (await rowsOf(foundation.pool, thresholdOf(account.organization_id)))[0]?.amount_micro ?? null
  return {
    name: 'threshold',
    fresh: formOf({}),
    wanted: thresholdIn,
    page: async (view) => thresholdPage({ ...view, now: await nowOf(view) }),
    confirm: async (view, { amount }) =>
      thresholdConfirmPage({
        ...view,
        now: await nowOf(view),
        wanted: amount === null ? null : String(amount),
        hidden: { amount: amount === null ? '' : formatCredits(amount) },
      }),
    perform: async ({ viewer, account }, { amount }) => {
      await setThreshold(foundation, {
        organizationId: account.organization_id,
        amount,
        ...provedOperator(viewer.user),
      })
      return null
    },
    leadsTo: '/credits/threshold',
  }
}
