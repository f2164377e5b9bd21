/**
 * Every state of a ledger's writer with every event. The table is the specification. The test brings a real writer into each
 * state and sends it each event. An event that the table does not list must throw.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createOutage } from '../../src/concurrency/outage.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import type { Committed, LedgerCommand } from '../../src/ledger/command.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { ledgerLimits } from '../../src/ledger/write/options.ts'
import { Writer } from '../../src/ledger/write/writer.ts'
import {
  type Next,
  nextOf,
  type StateKind,
  type WriterEvent,
  writerTable,
} from '../../src/ledger/write/writer-states.ts'
import { atMs, command, grantOf, openLedger, org, stream } from '../support/ledger-commands.ts'
import { logger } from '../support/logger.ts'
import { type AppendFault, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const events = [
  'submit',
  'ask',
  'late',
  'turn_over',
  'loaded',
  'looked',
  'written',
  'conflict',
  'caught_up',
  'unknown',
  'failed',
] as const satisfies readonly WriterEvent[]
const states = Object.keys(writerTable) as StateKind[]
const cases = states.flatMap((state) =>
  events.map((event) => ({ state, event, next: writerTable[state][event] })),
)

let log: MemoryEventLog
let nowMs: number
beforeEach(async () => {
  nowMs = atMs
  log = createMemoryEventLog({ now: () => nowMs })
  await openLedger(
    createLedger({ eventLog: log.client('opener'), snapshot: async () => null, logger, clock }),
    '1',
  )
})
afterEach(async () => {
  expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
})

const clock = { now: () => nowMs }

const grant = (key: string): LedgerCommand => command(key, grantOf('1'), { actor: 'cli' })

/** Every append and every read waits until the test decides its outcome. */
type Held<Fault> = (fault: Fault | undefined) => void

type Scene = {
  readonly writer: Writer
  readonly appends: Held<AppendFault>[]
  readonly reads: Held<'unavailable'>[]
  /** The outcomes of the commands, in the order in which the commands were sent. */
  readonly outcomes: string[]
  submit(key?: string, more?: Partial<LedgerCommand>): void
  /** Runs all tasks that are ready to run. */
  turn(): Promise<void>
  /** Answers every read and append until the writer is idle. */
  settle(): Promise<void>
}

// The tests end the pauses themselves, so timers must not fire while a test inspects a state.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

const sceneOf = (): Scene => {
  const appends: Held<AppendFault>[] = []
  const reads: Held<'unavailable'>[] = []
  const outcomes: string[] = []
  const reports = { rewritten: () => {}, appended: () => {}, notAppended: () => {}, balance: () => {} }
  const writer = new Writer(org, {
    eventLog: log.client('a', {
      onAppend: () => new Promise((resolve) => appends.push(resolve)),
      onRead: () => new Promise((resolve) => reads.push(resolve)),
    }),
    snapshot: async () => null,
    logger,
    clock,
    reports,
    away: createOutage({ logger, what: 'test' }),
    limits: {
      ...ledgerLimits,
      retryPauseMs: 0,
      unknownRetryMs: 0,
      unavailableRetryMs: 0,
    },
  })
  const turn = async (): Promise<void> => {
    for (let n = 0; n < 4; n++) await new Promise((resolve) => setImmediate(resolve))
  }
  let sent = 0
  const scene: Scene = {
    writer,
    appends,
    reads,
    outcomes,
    turn,
    submit: (key = `command-${sent}`, more = {}) => {
      const at = sent++
      outcomes[at] = 'waits'
      writer.submit({ ...grant(key), ...more } as LedgerCommand).then(
        ({ repeated }: Committed) => {
          outcomes[at] = repeated ? 'repeated' : 'committed'
        },
        (error: Error) => {
          outcomes[at] = error.name
        },
      )
    },
    settle: async () => {
      for (let n = 0; n < 40; n++) {
        appends.shift()?.(undefined)
        reads.shift()?.(undefined)
        await vi.advanceTimersByTimeAsync(1_000)
        await turn()
      }
    },
  }
  return scene
}

/** Appends an event as another process. */
const foreign = async (): Promise<void> => {
  const other = createLedger({ eventLog: log.client('b'), snapshot: async () => null, logger, clock })
  await other.submit(org, grant(`foreign-${log.attempts.length}`))
}

/** Brings a writer into a state, with a pending command if the state has one. */
const enter: Record<StateKind, (scene: Scene) => Promise<void>> = {
  unloaded: async () => {},
  loading: async (scene) => {
    scene.submit()
    await scene.turn()
  },
  idle: async (scene) => {
    void scene.writer.lastSeen()
    await scene.settle()
  },
  gathering: async (scene) => {
    await enter.idle(scene)
    scene.submit()
  },
  looking: async (scene) => {
    await enter.idle(scene)
    scene.submit('may be there', { absentUpTo: 0 })
    await scene.turn()
  },
  writing: async (scene) => {
    await enter.gathering(scene)
    await scene.turn()
  },
  catching_up: async (scene) => {
    await enter.writing(scene)
    await foreign()
    scene.appends.shift()?.(undefined)
    await scene.turn()
  },
  deciding: async (scene) => {
    await enter.writing(scene)
    scene.appends.shift()?.('late')
    await scene.turn()
  },
}

/** Answers the two reads with which a writer examines the place of its unknown append. */
const readPlace = async (scene: Scene): Promise<void> => {
  for (let n = 0; n < 2; n++) await happen.loaded(scene)
}

const happen: Record<WriterEvent, (scene: Scene) => Promise<void>> = {
  submit: async ({ submit }) => submit('arrives'),
  ask: async ({ writer }) => void writer.lastSeen().catch(() => undefined),
  late: async ({ writer }) => {
    nowMs += ledgerLimits.callerWaitMaxMs
    writer.refuseLate()
  },
  turn_over: (scene) => scene.turn(),
  loaded: async (scene) => {
    scene.reads.shift()?.(undefined)
    await scene.turn()
  },
  looked: (scene) => happen.loaded(scene),
  caught_up: (scene) => happen.loaded(scene),
  written: async (scene) => {
    if (scene.writer.state === 'deciding') {
      log.deliverLate()
      return readPlace(scene)
    }
    scene.appends.shift()?.(undefined)
    await scene.turn()
  },
  conflict: async (scene) => {
    await foreign()
    if (scene.writer.state === 'deciding') return readPlace(scene)
    await happen.written(scene)
  },
  unknown: async (scene) => {
    scene.appends.shift()?.('late')
    await scene.turn()
  },
  failed: async (scene) => {
    if (scene.writer.state === 'deciding') {
      // The log loses the event before the unknown append.
      log.restore(1)
      scene.reads.shift()?.(undefined)
      await scene.turn()
      scene.appends.shift()?.(undefined)
      return scene.turn()
    }
    scene.appends.shift()?.('unavailable')
    scene.reads.shift()?.('unavailable')
    await scene.turn()
  },
}

/**
 * The state that the writer reaches if no other command waits. If the table's next state is not an idle one, the writer takes one
 * more step.
 */
const arrivesAt = (event: WriterEvent, next: Next): StateKind => {
  if (next === 'restart') return 'unloaded'
  if (next !== 'onwards') return next
  // The pending command is decided next, unless it has just been written.
  if (event === 'written') return 'idle'
  return 'writing'
}

describe('events in the table', () => {
  const possible = cases.filter(({ next }) => next !== undefined)
  test.each(possible)('$state, $event: $next', async ({ state, event, next }) => {
    const scene = sceneOf()
    await enter[state](scene)
    expect(scene.writer.state).toBe(state)
    const appendsBefore = log.attempts.length
    await happen[event](scene)
    expect(scene.writer.state).toBe(arrivesAt(event, next ?? 'onwards'))
    // The writer does one thing at a time, and appends only after a decision.
    expect(scene.appends.length + scene.reads.length).toBeLessThanOrEqual(1)
    if (next === state) expect(log.attempts).toHaveLength(appendsBefore)
    await scene.settle()
    expect(['idle', 'unloaded']).toContain(scene.writer.state)
    expect(scene.outcomes).not.toContain('waits')
    await scene.writer.settled()
    expect(scene.outcomes).toEqual(outcomesAfter(state, event))
  })

  /** A pending command is committed, unless the event refuses its caller. A command that arrives is committed. */
  const outcomesAfter = (state: StateKind, event: WriterEvent): string[] => {
    const onItsWay = state === 'unloaded' || state === 'idle' ? [] : ['committed']
    const isSent = state === 'writing' || state === 'deciding'
    const refused = event === 'late' || event === 'failed'
    const refusal =
      isSent && (event === 'late' || state === 'deciding') ? 'LedgerOutcomeUnknown' : 'LedgerUnavailable'
    const first = refused ? onItsWay.map(() => refusal) : onItsWay
    return event === 'submit' ? [...first, 'committed'] : first
  }

  test('every committed command is in the ledger once; of the refused commands, only the command that was being written is', async () => {
    for (const { state, event } of possible) {
      // In this case the log itself was truncated.
      if (state === 'deciding' && event === 'failed') continue
      while (log.late.length > 0) log.deliverLate()
      log.restore(2)
      const foreignBefore = log.attempts.filter(({ client }) => client === 'b').length
      const scene = sceneOf()
      await enter[state](scene)
      await happen[event](scene)
      await scene.settle()
      const standing = log.eventsOf(stream)
      expect(new Set(standing.map(({ id }) => id)).size).toBe(standing.length)
      const committed = scene.outcomes.filter((outcome) => outcome === 'committed').length
      const others = log.attempts.filter(({ client }) => client === 'b').length - foreignBefore
      // The caller got no outcome, but the command was written.
      const arrived = state === 'writing' && event === 'late' ? 1 : 0
      const fences = standing.filter(({ type }) => type === 'LedgerFenced').length
      expect(standing.length - fences - 2, `${state}, ${event}`).toBe(committed + others + arrived)
    }
  })
})

describe('events not in the table', () => {
  test.each(cases.filter(({ next }) => next === undefined))(
    '$state, $event: cannot happen',
    ({ state, event }) => {
      expect(() => nextOf(state, event)).toThrow(`${state} received "${event}"`)
    },
  )

  test('only an event that ends the current work leads out of a state that has work', () => {
    for (const state of states) {
      if (state === 'unloaded' || state === 'idle') continue
      for (const event of ['submit', 'ask', 'late'] as const)
        expect(writerTable[state][event], `${state}, ${event}`).toBe(state)
    }
  })
})
