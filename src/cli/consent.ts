import type { Answer, Asks, Plan } from '../administration/declare.ts'
import { plain, sectionLines, sectionsOf } from './table.ts'

/**
 * Decides whether a command can make its change. On a terminal, every command that changes money, access or rows shows its plan and
 * asks. Without a terminal, the command runs unless the change removes something or cannot be undone. Such a change needs `--yes`.
 * `--dry-run` only shows the plan. A plan is based on the current state; the command checks the state again when it runs.
 */

/** Nothing was done, because no terminal can ask for consent and `--yes` is missing. */
export class NeedsYes extends Error {
  override name = 'NeedsYes'
  readonly would: readonly string[]
  readonly remedy = 'add --yes to make the change, or --dry-run to see the planned change'
  constructor(would: readonly string[]) {
    super('Nothing was done: the change must be confirmed, but there is no terminal.')
    this.would = would
  }
}

/** The person at the terminal declined, so nothing was done. */
export class Declined extends Error {
  override name = 'Declined'
}

type Consenting = {
  readonly dryRun: boolean
  readonly yes: boolean
  /** Asks the person at the terminal; null if there is no terminal. */
  readonly ask:
    | ((question: { readonly says: readonly string[]; readonly question: string }) => Promise<boolean>)
    | null
}

/**
 * Returns null if the command can run, and otherwise the plan as the answer of a dry run. Throws `NeedsYes`, `Declined` and the
 * errors of the plan.
 */
export const consentTo = async (
  { asks: asksAlways, plan: makePlan }: { readonly asks: Asks; readonly plan: () => Promise<Plan> },
  { dryRun, yes, ask }: Consenting,
): Promise<Answer | null> => {
  if (yes && !dryRun) return null
  const plan = await makePlan()
  if (dryRun) return dryRunAnswer(plan)
  const asks = plan.asks ?? asksAlways
  if (asks === 'never') return null
  if (ask !== null) {
    if (!(await ask({ says: saidIn(plan), question: 'Continue?' }))) throw new Declined('Nothing was done.')
  } else if (asks === 'always') throw new NeedsYes(plan.says)
  return null
}

const saidIn = ({ says, sections }: Plan): readonly string[] =>
  sections === undefined || sections.length === 0
    ? says.map(plain)
    : [...sectionLines(sections), '', ...says.map(plain)]

const dryRunAnswer = (plan: Plan): Answer => {
  const { says, json = {}, sections } = plan
  const said = sections !== undefined || Object.keys(json).length === 0
  return {
    json: { dry_run: true, would: says, ...json },
    lines: [
      ...saidIn(plan),
      ...(said ? [] : ['', ...sectionLines(sectionsOf(json))]),
      '',
      'Nothing was written.',
    ],
  }
}
