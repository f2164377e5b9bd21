import { afterMs } from '../../concurrency/deadline.ts'

/** A signal that new events may have arrived. It can be given at any time, but only one caller can wait for it. */
export type Notice = {
  give(): void
  /**
   * Resolves when the signal is given or the wait is aborted, and after `ms` at the latest. The result is true if the signal was given
   * since the last wait.
   */
  wait(ms: number): Promise<boolean>
}

/** `signal` aborts the waits. */
export const createNotice = (signal: AbortSignal): Notice => {
  let given = false
  let wake: (() => void) | undefined
  const give = (): void => {
    given = true
    wake?.()
  }
  const wait = async (ms: number): Promise<boolean> => {
    if (!given && !signal.aborted)
      await new Promise<void>((resolve) => {
        const done = (): void => {
          cancel()
          signal.removeEventListener('abort', done)
          wake = undefined
          resolve()
        }
        const cancel = afterMs(ms, done)
        signal.addEventListener('abort', done, { once: true })
        wake = done
      })
    const was = given
    given = false
    return was
  }
  return { give, wait }
}
