import type { FastifyInstance, FastifyRequest } from 'fastify'
import { approvalRefusal } from '../administration/approval.ts'
import { InputFault, instantOf, labelOf, priceNameOf } from '../administration/input.ts'
import { organizationsOf } from '../administration/ledgers/ledgers.ts'
import { provedOperator } from '../administration/operator.ts'
import { abandonRerate, applyRerate, approveRerate } from '../administration/rerates/apply.ts'
import { provedRun } from '../administration/rerates/proof.ts'
import { checkRange, listRerates, planRerate, pricesNamed } from '../administration/rerates/rerates.ts'
import { rerateRunId } from '../events/rerates.ts'
import { payingOf } from '../events/test-organization.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { type Form, formOf } from './form.ts'
import { capitalized, count } from './format.ts'
import { attemptOnce, type Dashboard, organizationPattern, PageMissing, sendPage, viewerOf } from './page.ts'
import type { FormFault } from './pages/layout.ts'
import { ledgersShownMax, planPage, reratePage, reratesPage } from './pages/rerates.ts'
import { namesOf } from './queries.ts'
import { shownSoon } from './shown-soon.ts'
import { begin } from './work-routes.ts'

/** Re-rates: plan, view, approval by another person, and application ledger by ledger. */

type RunParams = { Params: { run: string } }

export const rerateRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get('/rerates', async (request, reply) =>
    sendPage(
      reply,
      reratesPage({
        viewer: viewerOf(request, reply),
        runs: (await listRerates(context.foundation)).reverse(),
      }),
    ),
  )
  planRoutes(pages, context)
  runRoutes(pages, context)
}

/** Throws `InputFault`. A page accepts no file: prices are those of a book or of a proposal. */
const wantedIn = (form: Form) => {
  const [from, to] = [instantOf('from', form.text('from')), instantOf('to', form.text('to'))]
  checkRange(from, to, Date.now())
  const organization = form.text('organization').trim()
  if (organization !== '' && !organizationPattern.test(organization))
    throw new InputFault('organization', `"${organization}" is no id of an organization, such as org_01J…`)
  const book = priceNameOf('book', form.text('book'))
  return {
    from,
    to,
    book,
    organization: organization === '' ? null : organization,
    reason: labelOf('reason', form.text('reason')),
  }
}

const planRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  pages.get('/rerates/new', (request, reply) =>
    sendPage(reply, planPage({ viewer: viewerOf(request, reply), typed: () => '', fault: null })),
  )
  pages.post('/rerates/new', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) => {
      const { book, ...wanted } = wantedIn(form)
      return {
        ...wanted,
        prices: await pricesNamed(foundation, book, { from: wanted.from }),
      }
    })
    if ('fault' in outcome) {
      const typed = formOf(request.body).text
      return sendPage(reply.code(422), planPage({ viewer, typed, fault: outcome.fault }))
    }
    const { from, to, reason, organization, prices } = outcome.done
    return begin(context, reply, {
      key: `rerate/${viewer.once}`,
      title: 'Planning a re-rate',
      run: async (progress) => {
        const { proposed } = await planRerate(
          foundation,
          {
            book: prices,
            from,
            to,
            reason,
            organizationId: organization,
            organizations:
              organization === null ? payingOf(await organizationsOf(foundation)) : [organization],
            ...provedOperator(viewer.user),
          },
          (id, events) => progress(`${id}: ${count(events)} events are read.`),
        )
        return { href: `/rerates/${proposed.run}` }
      },
    })
  })
}

const runRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, twoPerson } = context

  const runAt = (text: string) => {
    if (!rerateRunId.safeParse(text).success) throw new PageMissing()
    return provedRun(foundation, text)
  }

  const page = async (
    request: FastifyRequest<RunParams>,
    viewer: ReturnType<typeof viewerOf>,
    fault: FormFault | null,
  ) => {
    const found = await runAt(request.params.run)
    const refused = approvalRefusal({
      proposer: found.proposed.by,
      approver: provedOperator(viewer.user).actor,
      twoPerson,
      consents: true,
    })
    const names = await namesOf(foundation.pool, [...found.ledgers.keys()].slice(0, ledgersShownMax))
    const said = refused === null ? null : `${capitalized(refused)}.`
    return reratePage({ viewer, found, names, refused: said, fault })
  }

  pages.get<RunParams>('/rerates/:run', async (request, reply) =>
    sendPage(reply, await page(request, viewerOf(request, reply), null)),
  )

  const acts = {
    approve: (run: string, actor: string) =>
      approveRerate(foundation, { run, actor, twoPerson, consents: true }),
    abandon: (run: string, actor: string, form: Form) =>
      abandonRerate(foundation, { run, actor, reason: labelOf('reason', form.text('reason')) }),
  }
  for (const [name, act] of Object.entries(acts))
    pages.post<RunParams>(`/rerates/:run/${name}`, async (request, reply) => {
      const { run } = await runAt(request.params.run)
      const viewer = viewerOf(request, reply)
      const outcome = await attemptOnce(context, request, async (form) =>
        act(run, provedOperator(viewer.user).actor, form),
      )
      return 'fault' in outcome
        ? sendPage(reply.code(422), await page(request, viewer, outcome.fault))
        : reply.redirect(`/rerates/${run}`, 303)
    })

  pages.post<RunParams>('/rerates/:run/apply', async (request, reply) => {
    const { run, ledgers } = await runAt(request.params.run)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async () => {
      if (ledgers.size === 0) throw new CommandRefused('the plan has no ledger')
    })
    if ('fault' in outcome) return sendPage(reply.code(422), await page(request, viewer, outcome.fault))
    return begin(context, reply, {
      key: `apply/${run}`,
      title: `Applying ${run}`,
      run: async (progress) => {
        await applyRerate(foundation, {
          run,
          twoPerson,
          ...provedOperator(viewer.user),
          onProgress: (done, of) => progress(`${count(done)} of ${count(of)} ledgers are done.`),
        })
        await shownSoon(context, ['accounts', 'ledger_lines', 'ledger_index'])
        return { href: `/rerates/${run}` }
      },
    })
  })
}
