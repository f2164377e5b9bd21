import type { Answer, Asks, Plan } from '../administration/declare.ts'
import type { Command, CommandContext, Given } from './command.ts'
import { members, sectionLines } from './table.ts'

/**
 * The one place that decides whether a command may make its change. On a terminal every command that moves money,
 * access or rows shows its plan and asks. Without a terminal it proceeds, unless it takes something away or
 * cannot be undone: that needs `--yes`. `--dry-run` shows the plan and ends there.
 *
 * A plan describes the state when it is made: the command decides again when it runs.
 */

/** No one can be asked, and `--yes` was not given: nothing was done. */
export class NeedsYes extends Error {
  override name = 'NeedsYes'
  readonly would: readonly string[]
  readonly remedy = 'give --yes to do it, or --dry-run only to see what it would do'
  constructor(would: readonly string[]) {
    super('Nothing was done: this takes something away, and there is no terminal to ask on.')
    this.would = would
  }
}

/** The person at the terminal said no: nothing was done. */
export class Declined extends Error {
  override name = 'Declined'
}

type Consenting = {
  readonly dryRun: boolean
  readonly yes: boolean
  /** Asks the person at the terminal; null: there is no terminal. */
  readonly ask:
    | ((question: { readonly says: readonly string[]; readonly question: string }) => Promise<boolean>)
    | null
}

/**
 * Null: the command may run. An answer: it was a dry run, and this is the plan. Throws `NeedsYes` and `Declined`,
 * and the errors of the plan.
 */
export const consentTo = async (
  { changes }: Command,
  { context, given, how }: { context: CommandContext; given: Given; how: Consenting },
): Promise<Answer | null> => {
  if (changes === 'nothing') return null
  const { dryRun, yes, ask } = how
  if (yes && !dryRun) return null
  const plan = await changes.plan(context, given)
  if (dryRun) return dryRunAnswer(plan)
  const asks: Asks = plan.asks ?? changes.asks
  if (asks === 'never') return null
  if (ask !== null) {
    if (!(await ask({ says: saidIn(plan), question: 'Continue?' }))) throw new Declined('Nothing was done.')
  } else if (asks === 'always') throw new NeedsYes(plan.says)
  return null
}

const saidIn = ({ says, sections }: Plan): readonly string[] =>
  sections === undefined || sections.length === 0 ? says : [...sectionLines(sections), '', ...says]

const dryRunAnswer = (plan: Plan): Answer => {
  const { says, json = {}, sections } = plan
  const said = sections !== undefined || Object.keys(json).length === 0
  return {
    json: { dry_run: true, would: says, ...json },
    lines: [...saidIn(plan), ...(said ? [] : ['', ...members({ ...json })]), '', 'Nothing was written.'],
  }
}
