import { z } from 'zod'
import type { InputVerdict } from '../../call/capability.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { Explanation } from '../../ledger/explain/explanation.ts'
import { query, type Sections, titled } from '../declare.ts'
import { call, flag, instant, number, organization, personal } from '../fields.ts'
import { InputFault } from '../input.ts'
import { explainCall } from './explain.ts'
import { callsAbout } from './find-calls.ts'
import { listLines } from './lines.ts'

const explain = query({
  name: 'ledger explain',
  action: 'accounts.read',
  summary: 'explain the cost of a call: facts, rule, price, lots and later corrections',
  // The dashboard has a page for each call.
  interfaces: ['command line', 'admin API'],
  input: z.object({
    request: call(),
    organization: organization({
      help: 'only in the ledger of this organization (default: any ledger that contains the call)',
    }).optional(),
    input: personal({
      label: 'Input',
      help: 'also show whether this e-mail address, IP address or profile was the input of the call',
    }).optional(),
    whole: flag({ label: 'Whole ledger', help: 'read the whole ledger, without read models' }),
  }),
  anyHistory: true,
  run: async ({ foundation, data, progress }, { request, organization: organizationId, input, whole }) => {
    const explanation = await explainCall(foundation, {
      requestId: request,
      organizationId,
      whole,
      onProgress: (of, events) => progress(`${of}: ${events} events`),
    })
    const verdict =
      input === undefined
        ? null
        : ((await (await data()).recognizerOf(input)(explanation.facts)) ?? unknownInput(explanation))
    return {
      json: { ...explanation, ...(verdict && { input: verdict }) },
      sections: sectionsOf(explanation, verdict),
    }
  },
})

const unknownInput = ({ facts, repeats }: Explanation): InputVerdict => ({
  verdict: 'cannot_be_told',
  why: whyUnknown(facts, repeats),
})

const whyUnknown = ({ kind }: CallFacts, repeats: string | null): string => {
  if (kind === 'replay')
    return repeats === null
      ? 'this call repeats an earlier call'
      : `this call repeats ${repeats}: explain that call instead`
  if (kind === 'refusal') return 'the log contains nothing about the input of a refused or failed call'
  return 'the log contains no hash of the input of such a call; see its facts'
}

/** An explanation for people. The parts of the call come after its figures. */
const sectionsOf = (call: Explanation, input: InputVerdict | null): Sections => {
  const { cost, facts, lots, balance, adjustments, replays, events, ...figures } = call
  const { lines, ...prices } = cost
  return [
    { ...figures, ...prices, balance_before: balance.before, balance_after: balance.after },
    'Facts',
    facts,
    ...titled('Charges', lines),
    ...titled('Lots that paid', lots),
    ...titled('Corrections', adjustments),
    ...titled('Answered again', replays),
    ...titled('Events', events),
    ...(input === null ? [] : ['Was that the input?', input]),
  ]
}

const findCalls = query({
  name: 'ledger find-calls',
  action: 'calls.find',
  summary: 'find the calls of an organization about an e-mail address, IP address or profile',
  input: z.object({
    organization: organization(),
    input: personal({
      label: 'E-mail address, IP address or profile id',
      help: 'not stored; the audit records your name, the organization and the time',
    }),
    from: instant({
      label: 'From',
      help: 'calls from this instant on (default: the last 30 days)',
    }).optional(),
    to: instant({ label: 'To', help: 'calls before this instant (default: now)' }).optional(),
    before: number(
      {
        label: 'Before revision',
        help: 'continue the search before this revision, as shown by a search that stopped early',
      },
      { min: 1, max: Number.MAX_SAFE_INTEGER },
    ).optional(),
  }),
  run: async ({ foundation, operator, data }, { organization: organizationId, input, before, ...given }) => {
    const { to = new Date().toISOString() } = given
    const { from = new Date(Date.parse(to) - searchedMs).toISOString() } = given
    if (from >= to) throw new InputFault('from', 'the start must be before the end of the range')
    const range = { organizationId, from, to, before: before ?? null }
    const found = await callsAbout(foundation, range, (await data()).recognizerOf(input), operator)
    const { calls, events_looked_at, cannot_be_told, next_before } = found
    const about = {
      found: calls.length,
      events_looked_at,
      ...(cannot_be_told > 0 && { cannot_be_told }),
      ...(next_before !== null && { next_before }),
    }
    const again = next_before === null ? null : { from, to, before: String(next_before) }
    return {
      json: { organization_id: organizationId, from, to, ...found },
      sections: [about, calls],
      ...(again !== null && {
        next: [
          {
            name: 'ledger find-calls',
            label: 'Search earlier calls',
            given: { organization: organizationId, input, ...again },
          },
        ],
      }),
    }
  },
})

const searchedMs = 30 * 86_400_000

export const declarations = [explain, listLines, findCalls]
