import { writeFile } from 'node:fs/promises'
import type { PricesGiven } from '../administration/fields.ts'
import { InputFault, instantOf, labelOf, priceNameForm, priceNameOf } from '../administration/input.ts'
import { organizationsOf } from '../administration/ledgers/ledgers.ts'
import { abandonRerate, applyRerate, approveRerate } from '../administration/rerates/apply.ts'
import { checkPlanFile, type ProvedRun, planFileOf, provedRun } from '../administration/rerates/proof.ts'
import { checkRange, listRerates, planRerate, pricesNamed } from '../administration/rerates/rerates.ts'
import { twoPersonOf } from '../config.ts'
import { rerateRunId } from '../events/rerates.ts'
import { payingOf } from '../events/test-organization.ts'
import {
  type Command,
  type CommandContext,
  type Given,
  type OperatedFoundation,
  type Parameter,
  type Plan,
  wholeOrNot,
} from './command.ts'
import { fromUser, readJsonFile } from './files.ts'
import { doneJson, planLines, runLines } from './rerate-lines.ts'

const runParameter: Parameter = { name: 'run', help: 'as "rerate plan" names it: rr_…', required: true }
const planParameter: Parameter = {
  name: 'plan',
  help: 'file that "rerate plan --out" wrote: refused where it is not the plan of the run',
  kind: 'file',
}

/** The plan of every organization of a large installation; far below the available memory. */
const fileBytesMax = 256 * 1024 * 1024

const planned = (given: Given) => {
  const from = instantOf('from', given.required('from'))
  const to = instantOf('to', given.required('to'))
  checkRange(from, to, Date.now())
  const reason = labelOf('reason', given.required('reason'))
  return { from, to, reason, book: given.required('book'), organization: given.text('org') }
}

const pricesGiven = async (text: string): Promise<PricesGiven> =>
  priceNameForm.test(text.trim())
    ? priceNameOf('book', text)
    : { kind: 'rules', document: await readJsonFile('book', fromUser(text), fileBytesMax) }

const plan: Command = {
  name: 'rerate plan',
  summary: 'what calls that were made would have cost under other prices; nothing is charged',
  parameters: [
    {
      name: 'book',
      help: 'version of a price book, a proposal (p3), or a file of rules (those that differ are enough)',
      required: true,
    },
    { name: 'from', help: 'ISO 8601 instant: of calls made then or later', required: true },
    { name: 'to', help: 'ISO 8601 instant: of calls made before it', required: true },
    { name: 'org', help: 'of this organization only (default: all)' },
    { name: 'reason', help: 'kept in the event log, and shown to the organization', required: true },
    { name: 'out', help: 'write the plan into this file as well (JSON)', kind: 'file' },
  ],
  changes: {
    of: 'records',
    asks: 'never',
    left: 'A plan may be recorded, which charges nothing: "rerate list" shows it.',
    plan: async (_, given) => {
      const { from, to, book, organization } = planned(given)
      return {
        says: [
          `Work out what calls from ${from} to ${to} of ${organization ?? 'every organization'} would have cost under ${book}, and record that plan; nothing is charged.`,
        ],
      }
    },
  },
  run: async ({ foundation, progress }, given) => {
    const { from, to, reason, book, organization } = planned(given)
    const open = await foundation()
    const made = await planRerate(
      open,
      {
        book: await pricesNamed(open, await pricesGiven(book), { from }),
        organizationId: organization ?? null,
        organizations: organization === undefined ? payingOf(await organizationsOf(open)) : [organization],
        from,
        to,
        reason,
        ...open.operator,
      },
      (organizationId, events) => progress(`${organizationId}: ${events} events`),
    )
    const out = given.text('out')
    const file = planFileOf(made)
    if (out !== undefined) await writeFile(out, `${JSON.stringify(file, null, 2)}\n`)
    return { json: { run: made.proposed.run, ...file }, lines: planLines(made) }
  },
}

const runOf = (given: Given): string => {
  const run = given.required('run')
  if (!rerateRunId.safeParse(run).success)
    throw new InputFault('run', `"${run}" is not the name of a re-rate, such as rr_01J…; see "rerate list"`)
  return run
}

/** Checks the run, and that a given file of its plan matches its plan. */
const checked = async (foundation: OperatedFoundation, given: Given): Promise<ProvedRun> => {
  const found = await provedRun(foundation, runOf(given))
  const file = given.text('plan')
  if (file !== undefined) checkPlanFile(found, await readJsonFile('plan', file, fileBytesMax), file)
  return found
}

const answerOf = (found: ProvedRun) => ({
  json: {
    run: found.run,
    ...planFileOf({ proposed: found.proposed, ledgers: [...found.ledgers.values()] }),
    ...doneJson(found),
  },
  lines: runLines(found),
})

const show: Command = {
  name: 'rerate show',
  summary: 'the plan of a re-rate, and what became of it; verifies its digest and signature',
  parameters: [runParameter, planParameter],
  changes: 'nothing',
  run: async ({ foundation }, given) =>
    answerOf(await checked(await foundation({ anyHistory: true }), given)),
}

const list: Command = {
  name: 'rerate list',
  summary: 'every re-rate that was planned',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation }) => ({ json: await listRerates(await foundation({ anyHistory: true })) }),
}

/** The actions on a plan, below the plan itself. */
const planOf = async (
  { foundation }: Pick<CommandContext, 'foundation'>,
  given: Given,
  said: (run: string) => string,
): Promise<Plan> => {
  const found = await checked(await foundation(), given)
  return { says: [...runLines(found), '', said(found.run)], json: answerOf(found).json }
}

const approve: Command = {
  name: 'rerate approve',
  summary: 'approve a plan; with TWO_PERSON=on by another person than who planned it',
  parameters: [runParameter, planParameter],
  changes: {
    of: 'money',
    asks: 'always',
    left: wholeOrNot('rerate show'),
    plan: (context, given) =>
      planOf(context, given, (run) => `Approve ${run}: "rerate apply" may then write its adjustments.`),
  },
  run: async ({ foundation, config }, given) => {
    const open = await foundation()
    const { run } = await checked(open, given)
    const found = await approveRerate(open, {
      run,
      ...open.operator,
      twoPerson: twoPersonOf(config),
      // If one person is enough, that person has accepted the plan.
      consents: true,
    })
    return answerOf(found)
  },
}

const apply: Command = {
  name: 'rerate apply',
  summary: 'write the adjustments of an approved plan; goes on where it was interrupted',
  parameters: [runParameter, planParameter],
  changes: {
    of: 'money',
    asks: 'always',
    left: 'Some ledgers may have their adjustments: "rerate apply" again goes on with the others, and charges none twice.',
    plan: (context, given) =>
      planOf(context, given, (run) => `Write the adjustments of ${run} into these ledgers.`),
  },
  run: async ({ foundation, config, progress }, given) => {
    const open = await foundation()
    const { run } = await checked(open, given)
    const found = await applyRerate(open, {
      run,
      ...open.operator,
      twoPerson: twoPersonOf(config),
      onProgress: (done, of) => progress(`${done} of ${of} ledgers`),
    })
    return answerOf(found)
  },
}

const abandon: Command = {
  name: 'rerate abandon',
  summary: 'give a plan up; what it was applied to stays',
  parameters: [runParameter, { name: 'reason', help: 'kept in the event log', required: true }],
  changes: {
    of: 'money',
    asks: 'always',
    left: wholeOrNot('rerate show'),
    plan: async (context, given) => {
      labelOf('reason', given.required('reason'))
      return planOf(
        context,
        given,
        (run) => `Give ${run} up: what it was applied to stays, the rest never is.`,
      )
    },
  },
  run: async ({ foundation }, given) => {
    const run = runOf(given)
    const reason = labelOf('reason', given.required('reason'))
    const open = await foundation()
    return answerOf(await abandonRerate(open, { run, reason, ...open.operator }))
  },
}

export const rerateCommands: readonly Command[] = [plan, list, show, approve, apply, abandon]
