/** Parses metrics as Prometheus does. */

/** The samples of one metric, by their labels as written. */
export const samples = (written: string, name: string): Record<string, number> =>
  Object.fromEntries(
    [...written.matchAll(new RegExp(`^enrichment_${name}(\\{.*\\})? (\\S+)$`, 'gm'))].map(
      ([, labels = '', value]) => [labels, Number(value)],
    ),
  )

/** The samples that changed, with their differences. */
export const changed = (before: string, after: string, name: string): Record<string, number> => {
  const old = samples(before, name)
  return Object.fromEntries(
    Object.entries(samples(after, name))
      .map(([labels, value]) => [labels, value - (old[labels] ?? 0)] as const)
      .filter(([, difference]) => difference !== 0),
  )
}

/** All values of each label, by the label's name. */
export const labelWords = (written: string): Map<string, Set<string>> => {
  const words = new Map<string, Set<string>>()
  for (const [, label = '', word = ''] of written.matchAll(/[{,]([a-z_]+)="((?:[^"\\]|\\.)*)"/g))
    words.set(label, (words.get(label) ?? new Set()).add(word))
  return words
}
