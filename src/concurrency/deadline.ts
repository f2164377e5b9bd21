/**
 * Limits the time that a caller waits for work. The work itself continues, and its outcome is then ignored. If the work must stop too, pass it a
 * signal.
 */

/** Runs a function once, after the given milliseconds. Returns a function that cancels the timer. */
export type After = (ms: number, run: () => void) => () => void

type Deadline = {
  /** If undefined, only the signal ends the wait. */
  readonly waitMs?: number | undefined
  readonly signal?: AbortSignal | undefined
  /** The timer to use. The default uses the system's clock. */
  readonly after?: After
}

/** Uses the system's clock. First reads pending input, so that an answer counts even if the event loop was too busy to read it in time. */
export const afterMs: After = (ms, run) => {
  let turn: NodeJS.Immediate | undefined
  const timer = setTimeout(() => {
    turn = setImmediate(run)
  }, ms)
  return () => {
    clearTimeout(timer)
    clearImmediate(turn)
  }
}

/** Settles as `work` does, or as `late` does if the deadline comes first. */
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

/** Returns a signal that aborts after `waitMs`, or when `signal` aborts. */
export const deadlineSignal = (waitMs: number, signal?: AbortSignal | undefined): AbortSignal => {
  const deadline = AbortSignal.timeout(Math.max(0, Math.ceil(waitMs)))
  return signal === undefined ? deadline : AbortSignal.any([deadline, signal])
}
