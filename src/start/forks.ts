import cluster, { type Worker } from 'node:cluster'
import type { Logger } from 'pino'
import { type Channel, channelOf } from '../concurrency/channel.ts'
import { within } from '../concurrency/deadline.ts'
import { type Config, ConfigError } from '../config.ts'
import { afterEnd, type Fortune, isHopeless, pauseMsAfter, untried } from './restarts.ts'

/**
 * The api processes that this one forked: started, started again when one ends by itself, asked, and ended together.
 *
 * They share API_PORT: this process takes connections and hands them round (SCHED_RR). Where each fork takes them from
 * the system itself (SCHED_NONE), 64 connections that are kept spread over four forks as 21, 7, 21 and 15, the calls 3,861
 * to 1,467; handed round, as 17, 15, 17, 15. A call costs nothing more, only a connection does.
 */

/** Of calls in flight; a fork that takes longer is killed. Less than this process has to end in. */
const drainMs = 20_000

/** What a fork says of itself, and is asked. */
export const forkSays = { answers: 'answers', failed: 'failed', isReady: 'isReady' } as const

/** How a fork learns its family: in its environment, and nothing that anyone sets. */
export const familyVariable = 'ENRICHMENT_FAMILY'

/** A fork that is there, or was. */
type Fork = {
  /** From 1; kept by the process that takes its place. */
  readonly number: number
  readonly channel: Channel
  readonly pid: number | undefined
}

export type Forks = {
  /** Resolves with the URL that all of them answer at. Throws what kept one of them from starting. */
  start(): Promise<string>
  /** Those that answer calls. */
  answering(): readonly Fork[]
  /** Sends a signal to those that answer. */
  signal(signal: NodeJS.Signals): void
  /** They answer what is in flight and end. Throws where one had to be killed. */
  close(): Promise<void>
}

type ForksOptions = {
  readonly config: Config
  readonly logger: Logger
  /** Where it is aborted, nothing is started any more. */
  readonly signal: AbortSignal
  /** A name that no other process's forks have. */
  readonly family: string
  /** Before it has said anything. */
  opened(fork: Fork): void
  /** One ended and another takes its place. */
  replaced(): void
}

type Run = Fork & {
  readonly worker: Worker
  readonly gone: Promise<void>
  /** When it began to answer. */
  answersSinceMs: number | null
  lastError: { readonly message: string; readonly configuration: boolean } | null
}

type State = {
  readonly options: ForksOptions
  /** By number. */
  readonly runs: Map<number, Run>
  readonly fortunes: Map<number, Fortune>
  readonly timers: Set<NodeJS.Timeout>
  readonly started: PromiseWithResolvers<string>
  starting: boolean
  closing: boolean
  url: string | null
  /** API_PORT as forks are given it. */
  port: number
}

/** `API_PROCESSES` of them, once they are started. */
export const createForks = (options: ForksOptions): Forks => {
  const { config, signal } = options
  const state: State = {
    options,
    runs: new Map(),
    fortunes: new Map(),
    timers: new Set(),
    started: Promise.withResolvers(),
    starting: true,
    closing: false,
    url: null,
    port: config.API_PORT,
  }
  const answering = (): Run[] => [...state.runs.values()].filter((run) => run.answersSinceMs !== null)
  let closed: Promise<void> | undefined
  return {
    start: () => {
      signal.addEventListener('abort', () => state.started.reject(new Error('ended while starting')))
      cluster.schedulingPolicy = cluster.SCHED_RR
      for (let number = 1; number <= config.API_PROCESSES; number++) run(state, number)
      return state.started.promise
    },
    answering,
    signal: (signal) => {
      for (const { worker } of answering()) worker.process.kill(signal)
    },
    close: () => {
      closed ??= close(state)
      return closed
    },
  }
}

const run = (state: State, number: number): void => {
  const { config, opened, signal, family } = state.options
  if (state.closing || signal.aborted) return
  const worker = cluster.fork({
    ...{ ROLES: 'api', API_PROCESSES: '1', API_PORT: String(portOf(state)), [familyVariable]: family },
    // A port for each, where it is not any free one.
    PEER_PORT: String(config.PEER_PORT === 0 ? 0 : config.PEER_PORT + number - 1),
  })
  const channel = channelOf(worker.process)
  const { promise: gone, resolve: end } = Promise.withResolvers<void>()
  const one: Run = {
    ...{ number, worker, channel, pid: worker.process.pid, gone, answersSinceMs: null, lastError: null },
  }
  state.runs.set(number, one)
  opened(one)
  channel.hear(forkSays.answers, (url) => answers(state, one, String(url)))
  channel.hear(forkSays.failed, (told) => {
    const { message, configuration } = Object(told)
    one.lastError = { message: String(message), configuration: configuration === true }
  })
  worker.once('exit', (code, killedBy) => {
    end()
    // What it said last may arrive after its end.
    channel.onClosed(() => ended(state, one, killedBy ?? code))
  })
  worker.process.on('error', ({ message }) => {
    // A process that could not be made has no exit.
    if (worker.process.pid !== undefined) return
    end()
    ended(state, one, message)
  })
}

/**
 * The port of API_PORT=0 is chosen for the first fork and kept for as long as one listens. A fork that is to take it up
 * again when none does must name it.
 */
const portOf = (state: State): number => {
  const listens = [...state.runs.values()].some((one) => one.answersSinceMs !== null)
  if (state.url !== null && !listens) state.port = Number(new URL(state.url).port)
  return state.port
}

const answers = (state: State, one: Run, url: string): void => {
  one.answersSinceMs = performance.now()
  state.url ??= url
  if (url !== state.url) {
    one.lastError = { message: `it listened at ${url} instead of ${state.url}`, configuration: false }
    one.worker.process.kill('SIGKILL')
    return
  }
  const all = [...state.runs.values()]
  if (all.length < state.options.config.API_PROCESSES || all.some((run) => run.answersSinceMs === null))
    return
  state.starting = false
  state.started.resolve(url)
}

const ended = (state: State, one: Run, how: number | string): void => {
  const { logger, signal, replaced, config } = state.options
  if (state.closing || signal.aborted) return
  state.runs.delete(one.number)
  const answeredMs = one.answersSinceMs === null ? null : performance.now() - one.answersSinceMs
  const fortune = afterEnd(state.fortunes.get(one.number) ?? untried, answeredMs)
  state.fortunes.set(one.number, fortune)
  const error = one.lastError?.message ?? (typeof how === 'number' ? `exit code ${how}` : how)
  const othersAnswer = [...state.runs.values()].some((run) => run.answersSinceMs !== null)
  // What is wrong with a value of the environment is wrong for the next one too.
  if (state.starting && one.lastError?.configuration === true) giveUp(state, new ConfigError(error))
  else if (isHopeless(fortune, { starting: state.starting, othersAnswer }))
    giveUp(
      state,
      new Error(
        `api process ${one.number} of ${config.API_PROCESSES} ended ${fortune.failedStarts} times in a row before it answered. The last time: ${error}`,
      ),
    )
  else {
    const pauseMs = pauseMsAfter(fortune)
    logger.warn(
      { process: one.number, pid: one.pid, error, pauseMs },
      'an api process ended, another one is started',
    )
    replaced()
    const timer = setTimeout(() => {
      state.timers.delete(timer)
      run(state, one.number)
    }, pauseMs)
    state.timers.add(timer)
  }
}

const giveUp = ({ starting, started }: State, error: Error): void => {
  if (starting) started.reject(error)
  // No one can catch this: it ends the process with an exit code that its supervisor acts on.
  else
    setImmediate(() => {
      throw error
    })
}

const close = async (state: State): Promise<void> => {
  state.closing = true
  for (const timer of state.timers) clearTimeout(timer)
  const runs = [...state.runs.values()]
  const all = Promise.all(runs.map(({ gone }) => gone))
  for (const { worker } of runs) worker.process.kill('SIGTERM')
  const inTime = await within(
    all.then(() => true),
    { waitMs: drainMs },
    () => false,
  )
  if (inTime) return
  const late = runs.filter(
    ({ worker }) => worker.process.exitCode === null && worker.process.signalCode === null,
  )
  for (const { worker } of late) worker.process.kill('SIGKILL')
  await all
  throw new Error(`${late.length} api processes did not end within ${drainMs / 1000} s and were killed`)
}
