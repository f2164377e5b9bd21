/** Reads a PromQL expression as far as it names series. */

export type Matcher = { readonly label: string; readonly operator: string; readonly value: string }
export type Selector = { readonly metric: string; readonly matchers: readonly Matcher[] }

const words = new Set([
  ...['sum', 'max', 'min', 'count', 'rate', 'increase', 'absent', 'histogram_quantile', 'predict_linear'],
  ...['by', 'without', 'and', 'or', 'unless', 'on', 'ignoring'],
])

/** The series an expression asks for. Throws where a word in it is neither a metric nor one of the language known here. */
export const selectorsOf = (expression: string): Selector[] => {
  const selectors: Selector[] = []
  const rest = expression
    // Labels that are grouped by are no series; `labelsOf` has them.
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

/** The labels an expression groups by. */
export const groupedBy = (expression: string): string[] =>
  [...expression.matchAll(/\bby\s*\(([^)]*)\)/g)].flatMap(([, list = '']) =>
    list.split(',').map((label) => label.trim()),
  )
