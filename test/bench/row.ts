/**
 * A line in a benchmark's table. `ratio` is `measured` divided by `against`, or the inverse, so that it can be compared with the
 * target.
 */
export type Row = {
  readonly what: string
  readonly measured: string
  readonly against: string
  readonly ratio: number | null
  /** Such as `>= 0.85`. Compared with the ratio, or with `value` if there is no ratio. */
  readonly target: string
  readonly met: boolean | null
}

export type BenchOptions = {
  readonly rounds: number
  readonly seconds: number
  readonly events: number
  readonly long: boolean
  /** The bare route makes its ids with `ulid()`, which is common but slow. */
  readonly bareUlid: boolean
  /** Reports progress on standard error. */
  readonly report: (line: string) => void
}

type Bound = { readonly least: number } | { readonly most: number }

/** A row with two figures and the target for their ratio. */
export const ratioRow = (
  what: string,
  figures: { measured: number; against: number; ratio?: number; unit: string; bound: Bound },
): Row => {
  const ratio = figures.ratio ?? figures.measured / figures.against
  return {
    what,
    measured: `${figure(figures.measured)} ${figures.unit}`,
    against: `${figure(figures.against)} ${figures.unit}`,
    ratio,
    target: targetOf(figures.bound),
    met: meets(ratio, figures.bound),
  }
}

/** A row with one figure and its target. */
export const figureRow = (what: string, measured: number, unit: string, bound: Bound | null): Row => ({
  what,
  measured: `${figure(measured)} ${unit}`,
  against: '',
  ratio: null,
  target: bound === null ? '' : `${targetOf(bound)} ${unit}`,
  met: bound === null ? null : meets(measured, bound),
})

const targetOf = (bound: Bound): string =>
  'least' in bound ? `>= ${figure(bound.least)}` : `<= ${figure(bound.most)}`
const meets = (value: number, bound: Bound): boolean =>
  'least' in bound ? value >= bound.least : value <= bound.most

/** Three significant digits, or a whole number with separators. */
export const figure = (value: number): string =>
  value >= 1_000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(3)))

export const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2
}

/** Rows as an aligned text table. */
export const tableOf = (rows: readonly Row[]): string => {
  const head = ['what', 'measured', 'against', 'ratio', 'target', 'met']
  const cells = rows.map(({ what, measured, against, ratio, target, met }) => [
    what,
    measured,
    against,
    ratio === null ? '' : ratio.toFixed(2),
    target,
    met === null ? '' : met ? 'yes' : 'NO',
  ])
  const widths = head.map((name, i) => Math.max(name.length, ...cells.map((row) => (row[i] ?? '').length)))
  const line = (row: readonly string[]): string =>
    row
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
      .join('  ')
      .trimEnd()
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...cells.map(line)].join('\n')
}
