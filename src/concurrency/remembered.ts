/**
 * One question at a time: whoever asks while it is under way, or within `keptMs` after its answer, shares that answer. A question that
 * failed is asked again.
 */
export const remembered = <Value>(
  ask: () => Promise<Value>,
  { keptMs = 0, nowMs = () => performance.now() }: { keptMs?: number; nowMs?: () => number } = {},
): (() => Promise<Value>) => {
  let last: Promise<Value> | null = null
  let untilMs = 0
  return () => {
    if (last !== null && nowMs() < untilMs) return last
    untilMs = Number.POSITIVE_INFINITY
    const asked = ask()
    asked.then(
      () => {
        untilMs = nowMs() + keptMs
      },
      () => {
        untilMs = 0
        last = null
      },
    )
    last = asked
    return asked
  }
}
