/** Runs one query at a time. Callers during a query, or within `keptMs` after its answer, share the answer. Failures are not cached. */
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
