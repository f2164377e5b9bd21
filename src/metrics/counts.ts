import { Counter, type Registry } from '@prometheus-io/client'

/**
 * Counters that count in plain numbers and become metrics only when they are read: the library's own increments
 * build a key of text every time, and three of them take longer than the authentication of a call.
 */

export type Description = {
  /** Without the prefix. */
  readonly name: string
  readonly help: string
  readonly registers: Registry[]
}

/** Counts words of one label. Each is known from the start, so that the first of it is seen as an increase. */
export const countWords = <Word extends string>(
  { name, help, registers }: Description,
  label: string,
  words: readonly Word[],
): ((word: Word) => void) => {
  const counts = new Map<Word, number>(words.map((word) => [word, 0]))
  new Counter({
    name: `enrichment_${name}`,
    help,
    labelNames: [label],
    registers,
    collect() {
      for (const [word, count] of counts) setCount(this, { [label]: word }, count)
    },
  })
  return (word) => void counts.set(word, (counts.get(word) ?? 0) + 1)
}

/** A counter of what is counted elsewhere. Null: at the moment it is not counted, and it is left out. */
export const counterOf = (
  { name, help, registers }: Description,
  read: () => number | null,
): Counter<string> =>
  new Counter({
    name: `enrichment_${name}`,
    help,
    registers,
    collect() {
      const count = read()
      if (count === null) this.remove()
      else setCount(this, {}, count)
    },
  })

export const setCount = (metric: Counter<string>, labels: Record<string, string>, value: number): void => {
  metric.remove(labels)
  metric.inc(labels, value)
}
