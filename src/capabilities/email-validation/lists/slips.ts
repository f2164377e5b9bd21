/**
 * Damerau-Levenshtein distance with adjacent transpositions counted once, as far as `max`; anything beyond it is
 * `max + 1`. It takes as many steps as the texts have pairs of letters.
 */
export const slipsBetween = (left: string, right: string, max: number): number => {
  if (Math.abs(left.length - right.length) > max) return max + 1
  let before: number[] = []
  let previous = Array.from({ length: right.length + 1 }, (_, at) => at)
  for (let row = 1; row <= left.length; row++) {
    const current = [row]
    let least = row
    for (let column = 1; column <= right.length; column++) {
      const same = left[row - 1] === right[column - 1]
      let cost = Math.min(
        (previous[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (previous[column - 1] ?? 0) + (same ? 0 : 1),
      )
      const exchanged =
        row > 1 && column > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1]
      if (exchanged) cost = Math.min(cost, (before[column - 2] ?? 0) + 1)
      current.push(cost)
      if (cost < least) least = cost
    }
    if (least > max) return max + 1
    before = previous
    previous = current
  }
  return Math.min(previous[right.length] ?? 0, max + 1)
}
