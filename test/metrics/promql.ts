/** Parses the series that a PromQL expression names. */

export type Matcher = { readonly label: string; readonly operator: string; readonly value: string }
export type Selector = { readonly metric: string; readonly matchers: readonly Matcher[] }

const words = new Set([
  'sum',
  'max',
  'min',
  'count',
  'rate',
  'increase',
  'absent',
  'histogram_quantile',
  'predict_linear',
  'by',
  'without',
  'and',
  'or',
  'unless',
  'on',
  'ignoring',
])

/** The series in an expression. Throws for a word that is neither a metric nor part of the language known here. */
export const selectorsOf = (expression: string): Selector[] => {
  const selectors: Selector[] = []
  const rest = expression
    // Labels in a grouping are not series; `groupedBy` returns them.
    .replaceAll(/\b(by|without|on|ignoring)\s*\([^)]*\)/g, ' ')
    .replaceAll(
      /([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?(?:\[[^\]]*\])?/g,
      (whole, name: string, inner?: string) => {
        if (words.has(name)) return whole.slice(name.length)
        const matchers = [...(inner ?? '').matchAll(/(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"/g)].map(
          ([, label = '', operator = '', value = '']) => ({ label, operator, value }),
        )
        selectors.push({ metric: name, matchers })
        return ' '
      },
    )
  if (!/^[\s\d.,()*/<>=+-]*$/.test(rest))
    throw new Error(`"${expression}" has more in it than is known here: "${rest}"`)
  return selectors
}

/** The labels by which an expression groups. */
export const groupedBy = (expression: string): string[] =>
  [...expression.matchAll(/\bby\s*\(([^)]*)\)/g)].flatMap(([, list = '']) =>
    list.split(',').map((label) => label.trim()),
  )
