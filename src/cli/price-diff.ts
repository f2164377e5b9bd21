import { monthOf } from '../administration/months/statements.ts'
import { organizationIds } from '../administration/organizations/organizations.ts'
import {
  type ComparedCosts,
  comparePrices,
  lastMonth,
  rulesNamed,
} from '../administration/prices/price-diff.ts'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import { payingOf } from '../events/test-organization.ts'
import type { Command } from './command.ts'
import { readPriceFile } from './files.ts'
import { changeLines } from './price-tables.ts'
import { table } from './table.ts'

const bookHelp = 'a version, such as 2, a proposal, such as p3, or a file'

export const priceDiff: Command = {
  name: 'price diff',
  summary: "how two price books differ, and what a month's calls would have cost under each",
  parameters: [
    { name: 'from', help: bookHelp, required: true },
    { name: 'to', help: bookHelp, required: true },
    { name: 'month', help: 'whose calls, such as 2026-10, in UTC (default: last month)' },
    { name: 'org', help: 'of this organization only' },
  ],
  changes: 'nothing',
  run: async ({ foundation, progress, logger }, given) => {
    const [first, second] = [given.required('from'), given.required('to')]
    const monthText = given.text('month')
    const month = monthText === undefined ? lastMonth(Date.now()) : monthOf('month', monthText)
    const open = await foundation()
    const from = await rulesNamed(open, first, { readJson: readPriceFile, over: null })
    const to = await rulesNamed(open, second, { readJson: readPriceFile, over: from.rules })
    const asked = given.text('org')
    const difference = await comparePrices(open, {
      from,
      to,
      month,
      organizations: asked === undefined ? payingOf(await organizationIds(open, logger)) : [asked],
      onProgress: (organizationId, calls) => progress(`${organizationId}: ${calls} calls`),
    })
    const { changes, organizations, sum } = difference
    const names = { from: from.name, to: to.name }
    return {
      json: {
        ...names,
        changes,
        month,
        organizations: organizations.map((one) => ({
          organization_id: one.organizationId,
          ...costJson(one),
        })),
        total: costJson(sum),
      },
      lines: [
        `${from.name} → ${to.name}`,
        ...changeLines(changes),
        '',
        ...(organizations.length === 0
          ? [`no calls in ${month}`]
          : [
              `calls of ${month} (UTC), in credits:`,
              ...table([
                ...organizations.map((one) => costRow(one.organizationId, one, names)),
                ...(organizations.length > 1 ? [costRow('all', sum, names)] : []),
              ]),
              '',
              ...table(skuRows(sum, names)),
              ...unratedLines(sum, names),
            ]),
      ],
    }
  },
}

type Names = { readonly from: string; readonly to: string }

const costRow = (organization: string, { from, to }: ComparedCosts, names: Names) => ({
  organization,
  calls: from.calls,
  [`under ${names.from}`]: formatCredits(from.total),
  [`under ${names.to}`]: formatCredits(to.total),
  difference: signed(to.total - from.total),
})

const signed = (amount: MicroCredits): string => `${amount > 0n ? '+' : ''}${formatCredits(amount)}`

const skusOf = ({ from, to }: ComparedCosts): string[] =>
  [...new Set([...from.skus.keys(), ...to.skus.keys()])].sort()

const skuRows = (costs: ComparedCosts, names: Names) =>
  skusOf(costs).map((sku) => {
    const [from, to] = [costs.from.skus.get(sku), costs.to.skus.get(sku)]
    return {
      sku,
      [`under ${names.from}`]: formatCredits(from?.amount ?? 0n),
      [`under ${names.to}`]: formatCredits(to?.amount ?? 0n),
      difference: signed((to?.amount ?? 0n) - (from?.amount ?? 0n)),
    }
  })

const unratedLines = ({ from, to }: ComparedCosts, names: Names): string[] =>
  [
    { name: names.from, ...from },
    { name: names.to, ...to },
  ].flatMap(({ name, unrated }) =>
    unrated === 0
      ? []
      : [`${unrated} of these calls would have been refused under ${name}: it has no rule for them`],
  )

const costJson = (costs: ComparedCosts) => ({
  calls: costs.from.calls,
  cost_from: formatCredits(costs.from.total),
  cost_to: formatCredits(costs.to.total),
  difference: formatCredits(costs.to.total - costs.from.total),
  unrated_from: costs.from.unrated,
  unrated_to: costs.to.unrated,
  skus: skusOf(costs).map((sku) => {
    const [from, to] = [costs.from.skus.get(sku), costs.to.skus.get(sku)]
    return {
      sku,
      lines_from: from?.lines ?? 0,
      lines_to: to?.lines ?? 0,
      cost_from: formatCredits(from?.amount ?? 0n),
      cost_to: formatCredits(to?.amount ?? 0n),
      difference: formatCredits((to?.amount ?? 0n) - (from?.amount ?? 0n)),
    }
  }),
})
