import { z } from 'zod'
import { payingOf } from '../../events/test-organization.ts'
import { readOperators } from '../approval.ts'
import { type Context, command, type Plan } from '../declare.ts'
import { instant, organization, prices, reason } from '../fields.ts'
import { organizationsOf, progressText } from '../ledgers/ledgers.ts'
import {
  abandonRerate,
  applyRerate,
  approveRerate,
  refuseApplying,
  refuseApproval,
  refuseEnded,
} from './apply.ts'
import { type ProvedRun, planFileOf } from './proof.ts'
import { checkedRun, planSections, runAnswer, runFields } from './queries.ts'
import { checkRange, planRerate, pricesNamed } from './rerates.ts'

const planGiven = z.object({
  book: prices({
    label: 'Prices',
    help: 'a version, such as 2, a proposal, such as p3, or rules as JSON (only those that differ are needed)',
  }),
  from: instant({
    label: 'Calls from (UTC)',
    help: 'ISO 8601 instant; includes calls made at this instant or later',
  }),
  to: instant({
    label: 'Calls before (UTC)',
    help: 'ISO 8601 instant; includes calls made before this instant',
  }),
  organization: organization({ help: 'only this organization (default: all)' }).optional(),
  reason: reason(),
})

const plan = command({
  name: 'rerate plan',
  action: 'rerates.change',
  long: 'once',
  summary: 'calculate the cost of past calls under other prices; nothing is charged',
  input: planGiven,
  out: 'also write the plan into this file (JSON)',
  changes: { of: 'records', asks: 'never' },
  plan: async ({ foundation }, input) => {
    const { from, to, organization: organizationId } = input
    checkRange(from, to, Date.now())
    await pricesNamed(foundation, input.book, { from })
    return `Calculate the cost of calls from ${from} to ${to} of ${organizationId ?? 'every organization'} under these prices, and record the plan; nothing is charged.`
  },
  run: async ({ foundation, operator, progress }, input) => {
    const { book, from, to, organization: organizationId, reason: why } = input
    checkRange(from, to, Date.now())
    const made = await planRerate(
      foundation,
      {
        book: await pricesNamed(foundation, book, { from }),
        organizationId: organizationId ?? null,
        organizations:
          organizationId === undefined ? payingOf(await organizationsOf(foundation)) : [organizationId],
        from,
        to,
        reason: why,
        actor: operator.actor,
      },
      (made) => progress(progressText(made)),
    )
    const { run } = made.proposed
    return {
      json: { run, ...planFileOf(made) },
      sections: planSections(made),
      next: [{ name: 'rerate show', label: 'Show', given: { run } }],
    }
  },
})

/** The plan of an action on a run, together with the run. */
const planOf = async (
  { foundation }: Context,
  input: { readonly run: string; readonly plan?: unknown },
  { refuse, says }: { readonly refuse: (found: ProvedRun) => void; readonly says: string },
): Promise<Plan> => {
  const found = await checkedRun(foundation, input)
  refuse(found)
  const { json, sections } = runAnswer(found)
  return { says: [says], json, sections }
}

const approve = command({
  name: 'rerate approve',
  action: 'rerates.change',
  summary: 'approve a plan; with TWO_PERSON=on, by a second person',
  input: z.object(runFields),
  changes: { of: 'money', asks: 'always' },
  plan: async (context, input) => {
    const { foundation, operator, twoPerson } = context
    const operators = await readOperators(foundation.eventLog, twoPerson)
    return planOf(context, input, {
      refuse: (found) => refuseApproval(found, { actor: operator.actor, twoPerson }, operators),
      says: `Approve ${input.run}: "rerate apply" can then write its adjustments.`,
    })
  },
  run: async ({ foundation, operator, twoPerson }, input) => {
    const { run } = await checkedRun(foundation, input)
    return runAnswer(await approveRerate(foundation, { run, actor: operator.actor, twoPerson }))
  },
})

const apply = command({
  name: 'rerate apply',
  action: 'rerates.change',
  long: 'repeatable',
  summary: 'write the adjustments of an approved plan; continues where it was interrupted',
  input: z.object(runFields),
  changes: { of: 'money', asks: 'always' },
  plan: (context, input) =>
    planOf(context, input, {
      refuse: (found) => refuseApplying(found, context),
      says: `Write the adjustments of ${input.run}, one in each of these ledgers. Ledgers that have changed since the plan are left out and listed. This cannot be undone, but another re-rate can be planned.`,
    }),
  run: async ({ foundation, operator, twoPerson, progress }, input) => {
    const { run } = await checkedRun(foundation, input)
    const found = await applyRerate(foundation, {
      run,
      actor: operator.actor,
      twoPerson,
      onProgress: (done, of) => progress(`${done} of ${of} ledgers`),
    })
    return runAnswer(found)
  },
})

const abandon = command({
  name: 'rerate abandon',
  action: 'rerates.change',
  summary: 'abandon a plan; adjustments already made remain',
  input: z.object({ run: runFields.run, reason: reason() }),
  changes: { of: 'money', asks: 'always' },
  plan: (context, input) =>
    planOf(context, input, {
      refuse: refuseEnded,
      says: `Abandon ${input.run}: adjustments already made remain, and the other ledgers are never adjusted.`,
    }),
  run: async ({ foundation, operator }, { run, reason: why }) =>
    runAnswer(await abandonRerate(foundation, { run, reason: why, actor: operator.actor })),
})

export const declarations = [plan, approve, apply, abandon]
