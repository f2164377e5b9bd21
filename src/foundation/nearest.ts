/** In words up to this length, fewer changes are allowed, because most short words are similar to each other. */
const shortLengthMax = 6
/** Longer words are not compared: no known word is that long, and the cost grows with the product of both lengths. */
const wordLengthMax = 100

/**
 * Returns the known word that was probably meant, or null. It differs by at most two inserted, removed, changed or swapped characters, or by at
 * most one in a short word.
 */
export const nearest = (word: string, known: readonly string[]): string | null => {
  if (word.length > wordLengthMax) return null
  const editsMax = word.length <= shortLengthMax ? 1 : 2
  let best: { readonly one: string; readonly edits: number } | null = null
  for (const one of known) {
    if (Math.abs(one.length - word.length) > editsMax) continue
    const edits = editsBetween(word, one)
    if (edits <= editsMax && (best === null || edits < best.edits)) best = { one, edits }
  }
  return best?.one ?? null
}

/** Returns the number of characters to insert, remove, change, or swap with the next one. */
const editsBetween = (from: string, to: string): number => {
  let before: number[] = []
  let last = Array.from({ length: to.length + 1 }, (_, i) => i)
  for (let i = 1; i <= from.length; i++) {
    const now = [i]
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1]
      const exchanged = from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]
      now.push(
        Math.min(
          (last[j] ?? 0) + 1,
          (now[j - 1] ?? 0) + 1,
          (last[j - 1] ?? 0) + (same ? 0 : 1),
          exchanged ? (before[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY,
        ),
      )
    }
    before = last
    last = now
  }
  return last[to.length] ?? 0
}
