/**
 * Waiting with an end. Nothing here stops the work itself: it continues, others may still wait for it, and a caller
 * who stopped waiting does not learn its outcome. Pass the work a signal if it has to stop too.
 */

/** Runs something once, after the given milliseconds. The returned function cancels it. */
export type After = (ms: number, run: () => void) => () => void

type Deadline = {
  /** Milliseconds; without it only the signal ends the wait. */
  readonly waitMs?: number | undefined
  readonly signal?: AbortSignal | undefined
  /** The timer, for a clock that is not the system's. */
  readonly after?: After
}

/** By the system's clock. */
export const afterMs: After = (ms, run) => {
  const timer = setTimeout(run, ms)
  return () => clearTimeout(timer)
}

/** Settles as `work` does, or as `late` does if the deadline comes first, with its value or error. */
export const within = async <Value, Late>(
  work: Promise<Value>,
  { waitMs, signal, after = afterMs }: Deadline,
  late: () => Late,
): Promise<Value | Late> => {
  const { promise: over, resolve: end } = Promise.withResolvers<void>()
  const cancel = waitMs === undefined ? undefined : after(waitMs, end)
  const onAbort = (): void => end()
  signal?.addEventListener('abort', onAbort, { once: true })
  if (signal?.aborted === true) end()
  try {
    return await Promise.race([work, over.then(late)])
  } finally {
    cancel?.()
    signal?.removeEventListener('abort', onAbort)
  }
}

/** Aborts after the given milliseconds, or with the given signal. */
export const deadlineSignal = (waitMs: number, signal?: AbortSignal | undefined): AbortSignal => {
  const deadline = AbortSignal.timeout(Math.max(0, Math.ceil(waitMs)))
  return signal === undefined ? deadline : AbortSignal.any([deadline, signal])
}
