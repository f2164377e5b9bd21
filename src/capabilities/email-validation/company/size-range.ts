/** From the smallest to the largest. */
export const sizeRanges = [
  '1-10',
  '11-50',
  '51-200',
  '201-500',
  '501-1000',
  '1001-5000',
  '5001-10000',
  '10001+',
] as const
export type SizeRange = (typeof sizeRanges)[number]

/** A range as data sets write it; null for any other. */
export const sizeRangeOf = (value: unknown): SizeRange | null => {
  if (typeof value !== 'string' || value.length > 40) return null
  const text = value
    .toLowerCase()
    .replaceAll(/[\s,]|employees/g, '')
    .replaceAll(/[\u2013\u2014]|to/g, '-')
  return sizeRanges.find((range) => range === text) ?? null
}

/** The range a number of employees lies in; null for none at all. */
export const sizeRangeOfCount = (count: number | null): SizeRange | null => {
  if (count === null || count < 1) return null
  return sizeRanges.find((range) => count <= Number(range.split('-')[1] ?? Number.POSITIVE_INFINITY)) ?? null
}
