import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { Logger } from 'pino'
import { createOverload, createSheddingLog, type Overload } from '../call/overload.ts'

const lookMs = 250
const loopResolutionMs = 10

/** The bound on calls in progress, by the event loop of this process, until `stop`. */
export const watchOverload = (
  logger: Pick<Logger, 'info' | 'warn'>,
): { readonly overload: Overload; stop(): void } => {
  const delay = monitorEventLoopDelay({ resolution: loopResolutionMs })
  delay.enable()
  const overload = createOverload(() => {
    const meanMs = delay.count === 0 ? lookMs : delay.mean / 1e6 - loopResolutionMs
    delay.reset()
    return meanMs
  })
  const shedding = createSheddingLog(overload, logger)
  const timer = setInterval(() => {
    overload.look()
    shedding()
  }, lookMs)
  timer.unref()
  const stop = (): void => {
    clearInterval(timer)
    delay.disable()
  }
  return { overload, stop }
}
