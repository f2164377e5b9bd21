/**
 * Every state of a ledger's writer by every event: the table is the specification, and a real writer is taken into each
 * state and made to meet each event. What the table does not hold must not be survived.
 */
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createOutage } from '../../src/event-log/outage.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import {
  type Committed,
  createLedger,
  type LedgerCommand,
  ledgerLimits,
} from '../../src/ledger/write/commit.ts'
import { createWriter, type Writer } from '../../src/ledger/write/writer.ts'
import {
  type Next,
  nextOf,
  type StateKind,
  type WriterEvent,
  writerTable,
} from '../../src/ledger/write/writer-states.ts'
import { atMs, command, grantOf, openLedger, org, stream } from '../support/ledger-commands.ts'
import { type AppendFault, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const logger = pino({ level: 'silent' })
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

/** Every append and every read waits here until the test says what becomes of it. */
type Held<Fault> = (fault: Fault | undefined) => void

type Scene = {
  readonly writer: Writer
  readonly appends: Held<AppendFault>[]
  readonly reads: Held<'unavailable'>[]
  /** What the callers were told, in the order in which they sent their commands. */
  readonly told: string[]
  submit(key?: string, more?: Partial<LedgerCommand>): void
  /** Lets everything that is at hand happen. */
  turn(): Promise<void>
  /** Lets the log answer whatever it is asked, until the writer is at rest. */
  settle(): Promise<void>
}

// Pauses are ended by a test, and by no clock that runs on while a state is looked at.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

const sceneOf = (): Scene => {
  const appends: Held<AppendFault>[] = []
  const reads: Held<'unavailable'>[] = []
  const told: string[] = []
  const reports = { rewritten: () => {}, appended: () => {}, notAppended: () => {}, balance: () => {} }
  const writer = createWriter(org, {
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
    told,
    turn,
    submit: (key = `command-${sent}`, more = {}) => {
      const at = sent++
      told[at] = 'waits'
      writer.submit({ ...grant(key), ...more } as LedgerCommand).then(
        ({ repeated }: Committed) => {
          told[at] = repeated ? 'repeated' : 'committed'
        },
        (error: Error) => {
          told[at] = error.name
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

/** Another process writes. */
const foreign = async (): Promise<void> => {
  const other = createLedger({ eventLog: log.client('b'), snapshot: async () => null, logger, clock })
  await other.submit(org, grant(`foreign-${log.attempts.length}`))
}

/** Takes a writer into a state, with a command on its way where the state has one. */
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

/** Lets a writer read the beginning and the end of the place it decides. */
const readPlace = async (scene: Scene): Promise<void> => {
  for (let n = 0; n < 2; n++) await happen.loaded(scene)
}

/** Makes an event happen. */
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
      // The event before the place is gone.
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

/** Where the table leads when nothing else waits: one step further than the table says, where that does not end at rest. */
const arrivesAt = (event: WriterEvent, next: Next): StateKind => {
  if (next === 'restart') return 'unloaded'
  if (next !== 'onwards') return next
  // The command that was on its way is decided next, unless it was just written.
  if (event === 'written') return 'idle'
  return 'writing'
}

describe('what the table holds', () => {
  const possible = cases.filter(({ next }) => next !== undefined)
  test.each(possible)('$state, $event: $next', async ({ state, event, next }) => {
    const scene = sceneOf()
    await enter[state](scene)
    expect(scene.writer.state).toBe(state)
    const appendsBefore = log.attempts.length
    await happen[event](scene)
    expect(scene.writer.state).toBe(arrivesAt(event, next ?? 'onwards'))
    // Never two pieces of work at once, and nothing is appended from where nothing was decided.
    expect(scene.appends.length + scene.reads.length).toBeLessThanOrEqual(1)
    if (next === state) expect(log.attempts).toHaveLength(appendsBefore)
    await scene.settle()
    expect(['idle', 'unloaded']).toContain(scene.writer.state)
    expect(scene.told).not.toContain('waits')
    await scene.writer.settled()
    expect(scene.told).toEqual(toldAfter(state, event))
  })

  /** A command on its way is committed, unless the event means that its caller is refused; one that arrives is committed. */
  const toldAfter = (state: StateKind, event: WriterEvent): string[] => {
    const onItsWay = state === 'unloaded' || state === 'idle' ? [] : ['committed']
    const isSent = state === 'writing' || state === 'deciding'
    const refused = event === 'late' || event === 'failed'
    const refusal =
      isSent && (event === 'late' || state === 'deciding') ? 'LedgerOutcomeUnknown' : 'LedgerUnavailable'
    const first = refused ? onItsWay.map(() => refusal) : onItsWay
    return event === 'submit' ? [...first, 'committed'] : first
  }

  test('every command that was committed is in the ledger once, and of those refused only the one that was under way', async () => {
    for (const { state, event } of possible) {
      // There the log itself was cut.
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
      const committed = scene.told.filter((told) => told === 'committed').length
      const others = log.attempts.filter(({ client }) => client === 'b').length - foreignBefore
      // Its caller does not know, and it was written.
      const arrived = state === 'writing' && event === 'late' ? 1 : 0
      const fences = standing.filter(({ type }) => type === 'LedgerFenced').length
      expect(standing.length - fences - 2, `${state}, ${event}`).toBe(committed + others + arrived)
    }
  })
})

describe('what the table does not hold', () => {
  test.each(cases.filter(({ next }) => next === undefined))(
    '$state, $event: cannot happen',
    ({ state, event }) => {
      expect(() => nextOf(state, event)).toThrow(`${state} met "${event}"`)
    },
  )

  test('only what ends a piece of work leaves a state that has one', () => {
    for (const state of states) {
      if (state === 'unloaded' || state === 'idle') continue
      for (const event of ['submit', 'ask', 'late'] as const)
        expect(writerTable[state][event], `${state}, ${event}`).toBe(state)
    }
  })
})
