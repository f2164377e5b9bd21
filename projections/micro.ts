/** Converts an event's amount to micro-credits, for columns that are added up. Events contain only canonical decimals. */
export const microOf = (amount: string): bigint => {
  const point = amount.indexOf('.')
  if (point === -1) return BigInt(amount) * 1_000_000n
  const digits = amount.slice(0, point) + amount.slice(point + 1).padEnd(6, '0')
  return BigInt(digits)
}
