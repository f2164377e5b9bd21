/** Draws tables as plots. The tables remain on the page. */
import uPlot from './uplot.js'

/** Hidden series and open tables of each figure, which are kept when the page is refreshed. */
const hidden = new Map()
const opened = new Set()

/** An outcome has the same colour in every plot. */
const outcomeColors = { answered: 1, refused: 2, failed: 5, 'rate limited': 7 }

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

/** Adds to each series all series before it. The largest sums are drawn first, and the smaller sums are drawn over them. */
const stacked = (series) => {
  const sums = []
  for (const [i, { values }] of series.entries())
    sums.push(i === 0 ? values : values.map((value, at) => value + sums[i - 1][at]))
  return sums
}

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 2 })
const exact = new Intl.NumberFormat('en', { maximumFractionDigits: 6 })

/** Formats a day as 11-21 and an hour as 14:00. At midnight, the day is shown instead of the hour. */
const timeText = (seconds, step, whole = false) => {
  const iso = new Date(seconds * 1000).toISOString()
  const isDay = step >= 86_400
  if (whole) return isDay ? iso.slice(0, 10) : `${iso.slice(0, 10)} ${iso.slice(11, 16)}`
  return isDay || iso.slice(11, 16) === '00:00' ? iso.slice(5, 10) : iso.slice(11, 16)
}

/** The steps of axis labels for calls, which are whole numbers. */
const wholeSteps = [1, 2, 5]
  .flatMap((first) => Array.from({ length: 15 }, (_, power) => first * 10 ** power))
  .sort((one, other) => one - other)

/** With these distances, and with all digits of small fractions, an axis never shows the same label twice. */
const [minute, hour, day] = [60, 3_600, 86_400]
const daySteps = [1, 2, 7, 14, 28, 91, 182, 364].map((days) => days * day)
const hourSteps = [1, 2, 3, 6, 12].map((hours) => hours * hour)
const minuteSteps = [1, 2, 5, 10, 15, 30].map((minutes) => minutes * minute)
const stepsFrom = (step) => [...minuteSteps, ...hourSteps, ...daySteps].filter((one) => one >= step)
const valueText = (value, step) => (step < 0.01 ? exact.format(value) : compact.format(value))

const optionsOf = ({ at, series }, { width, step, unit, colors }) => {
  const isWhole = series.every(({ values }) => values.every(Number.isInteger))
  const [minor, line] = [colorOf('--minor'), colorOf('--line')]
  const axis = { stroke: minor, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } }
  const half = step / 2
  return {
    width,
    height: 240,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    cursor: { points: { show: false }, drag: { x: true, y: false, setScale: false } },
    scales: {
      x: { range: () => [at[0] - half, at[at.length - 1] + half] },
      y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.08 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 64,
        incrs: stepsFrom(step),
        values: (_plot, splits) => splits.map((seconds) => timeText(seconds, step)),
      },
      {
        ...axis,
        size: 62,
        ...(isWhole ? { incrs: wholeSteps } : {}),
        label: unit,
        labelSize: 18,
        values: (_plot, splits, _axis, _space, step) => splits.map((value) => valueText(value, step)),
      },
    ],
    series: [
      {
        label: 'Time (UTC)',
        value: (_plot, seconds) => (seconds == null ? '' : timeText(seconds, step, true)),
      },
      ...series.toReversed().map(({ label, values }, i) => {
        const place = series.length - 1 - i
        const color = colorOf(`--plot-${outcomeColors[label] ?? colors?.[place] ?? place + 1}`)
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

/** Shows the values of all series next to the cursor. */
const tooltip = ({ at, series }, step, isHidden) => {
  const box = document.createElement('div')
  box.className = 'tooltip'
  box.hidden = true
  return {
    hooks: {
      init: (plot) => plot.over.append(box),
      setCursor: (plot) => {
        const { idx, left, top } = plot.cursor
        box.hidden = idx == null || left < 0
        if (box.hidden) return
        const lines = series.flatMap(({ label, values }) =>
          isHidden(label) ? [] : [`${label}: ${exact.format(values[idx])}`],
        )
        box.replaceChildren(
          ...[timeText(at[idx], step, true), ...lines].map((text) => {
            const line = document.createElement('div')
            line.textContent = text
            return line
          }),
        )
        const toLeft = left > plot.over.clientWidth / 2
        box.style.left = `${toLeft ? left - box.offsetWidth - 12 : left + 12}px`
        box.style.top = `${Math.min(top, Math.max(0, plot.over.clientHeight - box.offsetHeight))}px`
      },
    },
  }
}

/** Opens the same page for the time range that was selected by dragging. */
const zoom = (at, step) => ({
  hooks: {
    setSelect: (plot) => {
      if (plot.select.width < 8) return
      const [from, until] = [plot.select.left, plot.select.left + plot.select.width]
      const first = Math.floor((plot.posToVal(from, 'x') + step / 2) / step) * step
      const last = Math.ceil((plot.posToVal(until, 'x') + step / 2) / step) * step
      const address = new URL(location.href)
      const text = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16)
      address.searchParams.set('range', 'custom')
      address.searchParams.set('from', text(Math.max(first, at[0])))
      address.searchParams.set('to', text(last))
      location.assign(address)
    },
  },
})

const draw = (figure) => {
  const table = figure.querySelector('table')
  const chart = figure.querySelector('.chart')
  // There is nothing to draw without usage.
  if (table === null || chart === null) return
  const data = read(table)
  if (data.at.length === 0) return
  const step = data.at.length > 1 ? data.at[1] - data.at[0] : 86_400
  chart.hidden = false
  const details = figure.querySelector('details')
  const id = figure.getAttribute('aria-labelledby')
  details.open = opened.has(id)
  details.addEventListener('toggle', () => (details.open ? opened.add(id) : opened.delete(id)))
  if (!hidden.has(id)) hidden.set(id, new Set())
  const off = hidden.get(id)
  const isHidden = (label) => off.has(label)
  const unit = figure.dataset.unit
  const colors = figure.dataset.colors?.split(' ')
  let plot = null
  const render = () => {
    plot?.destroy()
    // A hidden series counts as zero, so that the series above it move down.
    const shown = data.series.map(({ label, values }) => ({
      label,
      values: isHidden(label) ? values.map(() => 0) : values,
    }))
    const options = optionsOf(data, { width: chart.clientWidth, step, unit, colors })
    plot = new uPlot(
      {
        ...options,
        series: options.series.map((one) => ({ ...one, show: !isHidden(one.label) })),
        plugins: [
          tooltip(data, step, isHidden),
          ...(figure.dataset.zoom === undefined ? [] : [zoom(data.at, step)]),
        ],
        hooks: { setSeries: [toggled] },
      },
      [data.at, ...stacked(shown).toReversed()],
      chart,
    )
  }
  const toggled = (drawn, index, { show }) => {
    if (index === null || show === undefined) return
    const { label } = drawn.series[index]
    if (show) off.delete(label)
    else off.add(label)
    queueMicrotask(render)
  }
  render()
  new ResizeObserver(() => {
    if (plot.width !== chart.clientWidth) plot.setSize({ width: chart.clientWidth, height: 240 })
  }).observe(chart)
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', render)
}

const drawAll = (root) => {
  for (const figure of root.querySelectorAll('figure.plot')) draw(figure)
}
drawAll(document)
// Draws the figures in a part of the page that htmx has replaced.
document.addEventListener('htmx:after:swap', ({ detail: { ctx } }) => {
  const part = document.getElementById(ctx.target.id)
  if (part !== null) drawAll(part)
})
