import type { PixelDayRow } from '../../../projections/pixel-days.ts'
import { provedUserOf } from '../../administration/operator.ts'
import { mayDo } from '../../administration/roles.ts'
import type { CountedRules } from '../../capabilities/index.ts'
import { count, instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import { figures, layout, organizationHead, table, type Viewer } from './layout.ts'

/** The pixel of one organization: its rules and their usage, and its hits by day. */

type Rule = CountedRules['rules'][number]

export type PixelView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly rules: CountedRules
  /** Users whose names this person may see; null: all. */
  readonly usersSeen: ReadonlySet<string> | null
  /** Shows only rules of domains that contain this text; empty: all. */
  readonly find: string
  /** Of the last thirty days. */
  readonly hits: { readonly fired: string; readonly refused: string }
  readonly days: readonly PixelDayRow[]
  /** Shows only days of this domain; empty: all. */
  readonly of: string
  /** Where the next page of days starts; null: there is none. */
  readonly until: string | null
}

const pathOf = ({ account }: Pick<PixelView, 'account'>): string =>
  `/organizations/${account.organization_id}/pixel`

const linkOf = (view: PixelView, changed: Readonly<Record<string, string>>): string => {
  const given = { find: view.find, of: view.of, ...changed }
  const query = new URLSearchParams(Object.entries(given).filter(([, value]) => value !== ''))
  return `${pathOf(view)}?${query.toString()}`
}

export const pixelPage = (view: PixelView): Html => {
  const { viewer, account, rules, hits } = view
  return layout({
    title: `Pixel of ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/pixel')}
<h1>Pixel of ${account.name}</h1>
<p class="note">How often its pixel may fire for a domain and everything under it, and where it may not fire at all.</p>
${
  rules.unreadableAt !== null &&
  html`<p class="notice bad" role="alert">An event of its rules cannot be read (revision ${count(rules.unreadableAt)}). It may be a block, so nothing fires.</p>`
}
${figures([
  ['Fired, 30 days', html`<strong>${count(hits.fired)}</strong>`],
  ['Refused, 30 days', count(hits.refused)],
  ['Rules', count(rules.count)],
])}
${rulesSection(view)}
${
  mayDo(viewer.role, 'pixel.change') &&
  html`<p class="actions"><a class="button" href="${formOf(view, 'limit')}">Set a limit</a>
<a class="button danger" href="${formOf(view, 'block')}">Block a domain</a></p>`
}
${daysSection(view)}`,
  })
}

const rulesSection = (view: PixelView): Html => {
  const { rules, find } = view
  const last = rules.rules.at(-1)
  return html`<section aria-labelledby="rules">
<h2 id="rules">Rules</h2>
${
  rules.count > 0 &&
  html`<form class="filters" method="get" action="${pathOf(view)}">
<p><label for="find">Domain holds</label>
<input id="find" name="find" value="${find}" maxlength="253" autocomplete="off"></p>
<p class="actions"><button class="quiet" type="submit">Find</button></p>
</form>`
}
${rules.uncounted && html`<p class="notice bad" role="status">The counters do not answer: what is used is not known, and no limited pixel fires.</p>`}
${
  rules.rules.length === 0
    ? html`<p class="empty">${rules.count === 0 ? 'No rules: the pixel fires everywhere.' : 'No rule is for such a domain.'}</p>`
    : table({ caption: 'Rules, by domain', rows: rules.rules, columns: ruleColumns(view) })
}
${rules.more && last !== undefined && html`<nav class="pager" aria-label="Pages of the rules"><a class="button quiet" href="${linkOf(view, { after: last.place })}">More rules</a></nav>`}
</section>`
}

const ruleColumns = (view: PixelView) => {
  const shown = [
    { head: 'Domain', kind: 'name', cell: ({ domain }: Rule) => domain },
    { head: 'Rule', cell: ruleText },
    { head: 'Used now', kind: 'number', cell: usedText },
    {
      head: 'Resets (UTC)',
      cell: ({ resetsAt }: Rule) => (resetsAt === null ? '–' : instant(resetsAt)),
    },
    { head: 'Set by', cell: ({ actor }: Rule) => actorText(view, actor) },
    { head: 'Set (UTC)', cell: ({ at }: Rule) => (at === '' ? '–' : instant(new Date(at))) },
  ] as const
  return mayDo(view.viewer.role, 'pixel.change')
    ? [...shown, { head: 'Change', cell: (rule: Rule) => removeLink(view, rule) }]
    : shown
}

const ruleText = ({ period, number }: Rule): Renderable =>
  period === null || number === null
    ? html`<span class="mark bad">blocked</span>`
    : `at most ${count(number)} per ${period}`

const usedText = ({ domain, period, number, used }: Rule): Renderable => {
  if (period === null || number === null) return '–'
  if (used === null) return 'not known'
  return html`${count(used)}${used >= number && html` <span class="mark bad">used up</span>`}
<meter min="0" max="${number}" value="${Math.min(used, number)}" aria-label="Hits of ${domain} this ${period}">${count(used)} of ${count(number)}</meter>`
}

const actorText = ({ account, usersSeen }: PixelView, actor: string): Renderable => {
  const key = /^key:([0-9A-Za-z]{16})$/.exec(actor)?.[1]
  if (key !== undefined)
    return html`<a class="id" href="/organizations/${account.organization_id}/keys/${key}">${actor}</a>`
  const user = provedUserOf(actor)
  return usersSeen === null || (user !== null && usersSeen.has(user)) ? actor : 'the operator'
}

/** The form of a command, filled in. */
const formOf = (
  { account }: PixelView,
  verb: string,
  typed: Readonly<Record<string, string>> = {},
): string => {
  const query = new URLSearchParams(typed).toString()
  return `/organizations/${account.organization_id}/pixel/${verb}${query === '' ? '' : `?${query}`}`
}

const removeLink = (view: PixelView, { domain, period }: Rule): Html =>
  period === null
    ? html`<a href="${formOf(view, 'unblock', { domain })}">Unblock<span class="unseen"> ${domain}</span></a>`
    : html`<a href="${formOf(view, 'unlimit', { domain, period })}">Remove<span class="unseen"> the limit of ${domain} by ${period}</span></a>`

const daysSection = (view: PixelView): Html => {
  const { days, of, until } = view
  return html`<section aria-labelledby="hits">
<h2 id="hits">Hits by day</h2>
<p class="note">As calls were answered, by the domain of the rule that decided.</p>
<form class="filters" method="get" action="${pathOf(view)}#hits">
<p><label for="of">Of the domain</label>
<input id="of" name="of" value="${of}" maxlength="253" autocomplete="off"></p>
<p class="actions"><button class="quiet" type="submit">Show</button></p>
</form>
${
  days.length === 0
    ? html`<p class="empty">No hits${of !== '' && html` for ${of}`}.</p>`
    : table({
        caption: 'Hits, newest day first',
        rows: days,
        columns: [
          { head: 'Day (UTC)', kind: 'name', cell: ({ day }) => html`<time datetime="${day}">${day}</time>` },
          { head: 'Domain', cell: ({ domain }) => (domain === '' ? 'none decided' : domain) },
          { head: 'Fired', kind: 'number', cell: ({ fired }) => count(fired) },
          { head: 'Refused', kind: 'number', cell: ({ refused }) => count(refused) },
        ],
      })
}
${until !== null && html`<nav class="pager" aria-label="Pages of the hits"><a class="button quiet" href="${linkOf(view, { until })}#hits">Earlier days</a></nav>`}
</section>`
}
