import type { FastifyInstance } from 'fastify'
import { approvalRefusal } from '../administration/approval.ts'
import { provedOperator } from '../administration/operator.ts'
import { approvePriceBook, priceNameOf, pricesAt, proposalAt } from '../administration/prices/prices.ts'
import { mayDo } from '../administration/roles.ts'
import { faultOf } from './form.ts'
import { capitalized } from './format.ts'
import { type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { pricesPage, proposalPage } from './pages/prices.ts'

/** The price books, and the form that approves a proposal: a signed-in person is proved. */

type ProposalParams = { Params: { proposal: string } }

export const priceRoutes = (pages: FastifyInstance, { foundation, twoPerson }: Dashboard): void => {
  pages.get('/prices', async (request, reply) => {
    const { open, ...published } = await pricesAt(foundation, Date.now())
    const viewer = viewerOf(request, reply)
    // A proposal, with its reason, is visible only to the operator until it is published.
    const seesProposals = mayDo(viewer.role, 'finance.read')
    return sendPage(reply, pricesPage({ viewer, ...published, open: seesProposals ? open : [] }))
  })

  const proposalOf = async (text: string) => {
    const name = priceNameOf(text)
    const found = name?.kind === 'proposal' ? await proposalAt(foundation, name.number, Date.now()) : null
    if (found === null) throw new PageMissing()
    return found
  }

  pages.get<ProposalParams>('/prices/:proposal', async (request, reply) => {
    const { proposal, changes, gone } = await proposalOf(request.params.proposal)
    const viewer = viewerOf(request, reply)
    const refused =
      gone ??
      approvalRefusal({
        proposer: proposal.proposed.by,
        approver: provedOperator(viewer.user).actor,
        twoPerson,
        consents: true,
      })
    const said = refused === null ? null : `${capitalized(refused)}.`
    return sendPage(reply, proposalPage({ viewer, proposal, changes, refused: said, fault: null }))
  })

  pages.post<ProposalParams>('/prices/:proposal/approve', async (request, reply) => {
    const { proposal, changes } = await proposalOf(request.params.proposal)
    const viewer = viewerOf(request, reply)
    try {
      await approvePriceBook(foundation, {
        proposal: proposal.proposal,
        twoPerson,
        // Sending the form is the consent.
        consents: true,
        ...provedOperator(viewer.user),
      })
    } catch (error) {
      const fault = faultOf(error)
      if (fault === null) throw error
      const page = proposalPage({ viewer, proposal, changes, refused: null, fault })
      return sendPage(reply.code(422), page)
    }
    return reply.redirect('/prices', 303)
  })
}
