import uPlot from './uplot.js'

/** Draws the tables that are marked for it. The table remains: the plot shows only data that is in it. */

const colorOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

const read = (table) => {
  const [, ...names] = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim())
  const rows = [...table.tBodies[0].rows]
  const at = rows.map((row) => Date.parse(row.querySelector('time').dateTime) / 1000)
  const series = names.map((label, i) => ({
    label,
    values: rows.map((row) => Number(row.cells[i + 1].querySelector('data').value)),
  }))
  return { at, series }
}

/** The sum of a series and all series before it: the bars of the last are drawn first, and the others over them. */
const stacked = (series) => {
  const sums = []
  for (const [i, { values }] of series.entries())
    sums.push(i === 0 ? values : values.map((value, at) => value + sums[i - 1][at]))
  return sums
}

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 2 })
const exact = new Intl.NumberFormat('en', { maximumFractionDigits: 6 })

/** A day as 11-21, and an hour as 14:00 or, at the beginning of a day, as that day. */
const timeText = (seconds, step, whole = false) => {
  const iso = new Date(seconds * 1000).toISOString()
  const isDay = step >= 86_400
  if (whole) return isDay ? iso.slice(0, 10) : `${iso.slice(0, 10)} ${iso.slice(11, 16)}`
  return isDay || iso.slice(11, 16) === '00:00' ? iso.slice(5, 10) : iso.slice(11, 16)
}

/** Calls are whole numbers, and so are their axis labels: there is no fifth of a call. */
const wholeSteps = [1, 2, 5]
  .flatMap((first) => Array.from({ length: 15 }, (_, power) => first * 10 ** power))
  .sort((one, other) => one - other)

/** No label stands twice: days are whole, and parts of credits keep the digits in which they differ. */
const [hour, day] = [3_600, 86_400]
const daySteps = [1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * day)
const hourSteps = [1, 2, 3, 6, 12].map((hours) => hours * hour)
const valueText = (value, step) => (step < 0.01 ? exact.format(value) : compact.format(value))

const optionsOf = ({ at, series }, { width, step }) => {
  const isWhole = series.every(({ values }) => values.every(Number.isInteger))
  const [minor, line] = [colorOf('--minor'), colorOf('--line')]
  const axis = { stroke: minor, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } }
  const half = step / 2
  return {
    width,
    height: 240,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    cursor: { points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { range: () => [at[0] - half, at[at.length - 1] + half] },
      y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.08 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 64,
        incrs: step >= day ? daySteps : [...hourSteps, ...daySteps],
        values: (_plot, splits) => splits.map((seconds) => timeText(seconds, step)),
      },
      {
        ...axis,
        size: 62,
        ...(isWhole ? { incrs: wholeSteps } : {}),
        values: (_plot, splits, _axis, _space, step) => splits.map((value) => valueText(value, step)),
      },
    ],
    series: [
      {
        label: 'Time (UTC)',
        value: (_plot, seconds) => (seconds == null ? '' : timeText(seconds, step, true)),
      },
      ...series.toReversed().map(({ label, values }, i) => {
        const color = colorOf(`--plot-${series.length - i}`)
        return {
          label,
          stroke: color,
          points: { show: false },
          width: 0,
          fill: color,
          paths: uPlot.paths.bars({ size: [0.8, 40] }),
          value: (_plot, _sum, _series, index) => (index === null ? '' : exact.format(values[index])),
        }
      }),
    ],
  }
}

const draw = (figure) => {
  const table = figure.querySelector('table')
  const chart = figure.querySelector('.chart')
  // Without usage there is nothing to draw.
  if (table === null || chart === null) return
  const data = read(table)
  if (data.at.length === 0) return
  const step = data.at.length > 1 ? data.at[1] - data.at[0] : 86_400
  chart.hidden = false
  figure.querySelector('details').open = false
  const sums = stacked(data.series)
  let plot = null
  const render = () => {
    plot?.destroy()
    plot = new uPlot(
      optionsOf(data, { width: chart.clientWidth, step }),
      [data.at, ...sums.toReversed()],
      chart,
    )
  }
  render()
  new ResizeObserver(() => {
    if (plot.width !== chart.clientWidth) plot.setSize({ width: chart.clientWidth, height: 240 })
  }).observe(chart)
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', render)
}

for (const figure of document.querySelectorAll('figure.plot')) draw(figure)
