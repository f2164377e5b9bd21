/** The random generator Mulberry32, which draws equal numbers in every run. */
export type SeededRandom = {
  /** A float in [0, 1). */
  next(): number
  /** An integer in [0, below). */
  integer(below: number): number
  pick<Item>(items: readonly Item[]): Item
}

export function seededRandom(seed: number): SeededRandom {
  let state = seed
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const integer = (below: number) => Math.floor(next() * below)
  return {
    next,
    integer,
    pick(items) {
      const item = items[integer(items.length)]
      if (item === undefined) throw new Error('nothing to pick from')
      return item
    },
  }
}
