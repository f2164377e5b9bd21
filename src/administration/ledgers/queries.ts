import { z } from 'zod'
import { creditsText } from '../../billing/money.ts'
import type { InputVerdict } from '../../call/capability.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { Explanation } from '../../ledger/explain/explanation.ts'
import { query } from '../declare.ts'
import { anyText, flag, id, organization } from '../fields.ts'
import { explainCall, requestIdPattern } from './explain.ts'

/** Why a call cost what it did. */

const explain = query({
  name: 'ledger explain',
  action: 'accounts.read',
  summary: 'explain the cost of a call, by its request id: facts, rule, price, lots and later corrections',
  // The dashboard has a page of each call.
  interfaces: ['command line', 'admin API'],
  input: z.object({
    request: id(
      { label: 'Call', help: 'request id, such as 01JB2ZQ5V7N3K2M4P6R8T0W1X2' },
      requestIdPattern,
      '01JB2ZQ5V7N3K2M4P6R8T0W1X2',
    ),
    organization: organization({
      help: 'only in the ledger of this organization (default: any ledger that has it)',
    }).optional(),
    input: anyText({
      label: 'Input',
      help: 'also say whether this e-mail address, IP address or profile was the input of the call',
    }).optional(),
    whole: flag({ label: 'Whole ledger', help: 'read the whole ledger, without read models' }),
  }),
  anyHistory: true,
  run: async ({ foundation, data, progress }, { request, organization: organizationId, input, whole }) => {
    const explanation = await explainCall(foundation, {
      ...{ requestId: request, organizationId, whole },
      onProgress: (of, events) => progress(`${of}: ${events} events`),
    })
    const verdict =
      input === undefined
        ? null
        : ((await (await data()).recognize(explanation.facts, input)) ?? unknownInput(explanation))
    return {
      json: { ...explanation, ...(verdict && { input: verdict }) },
      lines: [...linesOf(explanation), ...(verdict === null ? [] : ['', inputLine(verdict)])],
    }
  },
})

const unknownInput = ({ facts, repeats }: Explanation): InputVerdict => ({
  verdict: 'cannot_be_told',
  why: whyUntold(facts, repeats),
})

const whyUntold = ({ kind }: CallFacts, repeats: string | null): string => {
  if (kind === 'replay')
    return repeats === null ? 'it repeats an earlier call' : `it repeats ${repeats}: ask about that call`
  if (kind === 'refusal') return 'the log holds nothing of the input of a refused or failed call'
  return 'the log holds no hash of the input of such a call; see its facts'
}

const inputLine = ({ verdict, why }: InputVerdict): string =>
  `Was that the input? ${verdict === 'cannot_be_told' ? 'Unknown' : verdict === 'yes' ? 'Yes' : 'No'}${why === undefined ? '.' : `: ${why}.`}`

/** For people: sentences, most important first. */
const linesOf = (call: Explanation): string[] => [
  `${call.capability} call ${call.request_id}, ${call.at}`,
  `  organization ${call.organization_id}, key ${call.key_id}`,
  `  ${call.outcome}${call.code === null ? '' : ` with ${call.code}`}; facts: ${factsOf(call.facts)}`,
  ...(call.repeats === null
    ? []
    : [`  repeats the answer of ${call.repeats}, under the same Idempotency-Key`]),
  ...(call.trace_id === null ? [] : [`  trace ${call.trace_id}, as its request named it`]),
  ...call.replays.map(
    ({ request_id, at }) => `  answered again at ${at}, as ${request_id ?? 'a call without an id'}`,
  ),
  '',
  ...costLines(call),
  ...lotLines(call),
  `Balance before: ${call.balance.before}, after: ${call.balance.after}`,
  ...adjustmentLines(call),
  '',
  ...call.events.map(
    ({ type, revision, event_id, position, digest }) =>
      `revision ${revision}  ${type}  ${event_id}  position ${position}  digest ${digest}`,
  ),
  call.checkpoint === null
    ? 'No signed checkpoint covers it yet.'
    : `Covered by the checkpoint of ${call.checkpoint.at} over ${call.checkpoint.size} events, root ${call.checkpoint.root}`,
  `As of revision ${call.as_of.revision} of the ledger.`,
]

const factsOf = (facts: CallFacts): string =>
  Object.entries(facts)
    .filter(([name]) => name !== 'kind')
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(', ') || 'none'

const costLines = ({ cost }: Explanation): string[] => {
  const book =
    cost.price_book === null
      ? []
      : [`  price book ${cost.price_book.version}, digest ${cost.price_book.digest}`]
  if (cost.free_by !== null)
    return [
      `It cost nothing: ${cost.free_by.because || 'no price applied'} (rule ${cost.free_by.rule} version ${cost.free_by.rule_version})`,
      ...book,
    ]
  return [
    `It cost ${creditsText(cost.charged)}${cost.now === cost.charged ? '' : `; now, after corrections, ${cost.now}`}`,
    ...cost.lines.map(
      ({ sku, amount, rule, rule_version, because, book_amount, override }) =>
        `  ${amount} for ${sku}: ${because || 'its rule applied'} (rule ${rule} version ${rule_version})` +
        (override === null
          ? ''
          : `; the organization's own price since ${override.effective_from}${override.reason === null ? '' : ` (${override.reason})`}, in place of ${book_amount ?? "the book's"}`),
    ),
    ...book,
  ]
}

const lotLines = ({ lots, overdraft }: Explanation): string[] => [
  ...lots.map(
    ({ grant_id, amount, opened }) =>
      `  ${amount} from lot ${grant_id}` +
      (opened === null
        ? ''
        : `: ${opened.amount} ${opened.by === 'grant' ? 'granted' : 'given back'} ${opened.at} (${opened.reason}), ${opened.expires_at === null ? 'never expires' : `expires ${opened.expires_at}`}`),
  ),
  ...(overdraft === '0' ? [] : [`  ${overdraft} from the overdraft`]),
]

const adjustmentLines = ({ adjustments }: Explanation): string[] =>
  adjustments.map(
    ({ kind, amount, at, reason, rerate_run, event }) =>
      `${amount.startsWith('-') ? `Raised by ${amount.slice(1)}` : `Lowered by ${amount}`} at ${at}: ${kind}, ${reason}` +
      `${rerate_run === null ? '' : `, run ${rerate_run}`}${event === null ? '' : ` (revision ${event.revision}, digest ${event.digest})`}`,
  )

export const declarations = [explain]
