import { randomUUID } from 'node:crypto'
import type { EventLog, NewEvent } from '../../src/event-log/port.ts'
import { startApiProcesses } from './api-processes.ts'
import { withFoundation } from './database.ts'
import { type LoadGenerator, openLoadGenerator } from './load.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { costsOf, tableOfScale } from './scaling-model.ts'
import { openAccount } from './service.ts'

/**
 * What a call costs the process that takes it and the process that writes its ledger, where those are two, and how long
 * the log's head is held for an append: what `scaling-model.ts` calculates with.
 *
 * Two api processes; one organization at a time is called at one of them. Whether that one passes the calls on is seen from
 * the processor time of the other.
 */

const connections = 64
const warmUpSeconds = 2
/** One of two processes owns each; that all have the same owner happens in 1 of 128 runs. */
const organizations = 8
/** A process that writes for another takes far more than this share of what the called one takes; an idle one far less. */
const workingShare = 0.3
const callsOfLargeAppend = 256
const eventsPerCall = 2
const appendsTimed = 200

type Taken = {
  readonly calledUs: number
  readonly otherUs: number
  readonly postgresUs: number
  readonly callsPerAppend: number
}

export const ownerCost = async ({ rounds, seconds, begin, tell }: BenchOptions): Promise<Row[]> => {
  const generator = openLoadGenerator()
  try {
    return await withFoundation(async ({ foundation, dataDir }) => {
      const held = await headHeldMs(foundation.eventLog)
      tell(
        `owner-cost: the head is held ${held.one.toFixed(2)} ms for an append of one call, ${held.large.toFixed(2)} ms for one of ${callsOfLargeAppend}`,
      )
      const apiKeys: string[] = []
      while (apiKeys.length < organizations) apiKeys.push((await openAccount(foundation)).apiKey)
      const processes = await startApiProcesses({
        count: 2,
        dataDir,
        eventLogUrl: undefined,
        environment: {},
      })
      try {
        const [port = 0] = processes.ports
        const take = (apiKey: string, forSeconds: number): Promise<Taken> =>
          taken({ processes, generator, port, apiKey, seconds: forSeconds })
        for (const apiKey of apiKeys) await take(apiKey, warmUpSeconds)
        begin()
        const here: Taken[] = []
        const passed: Taken[] = []
        for (let round = 0; round < rounds; round++)
          for (const apiKey of apiKeys) {
            const one = await take(apiKey, seconds)
            const kind = one.otherUs > one.calledUs * workingShare ? passed : here
            kind.push(one)
            tell(
              `owner-cost: ${kind === here ? 'written where it is called' : 'passed on'}: the called process ${one.calledUs.toFixed(0)} us, ` +
                `the other ${one.otherUs.toFixed(0)}, PostgreSQL ${one.postgresUs.toFixed(0)}; ${one.callsPerAppend.toFixed(1)} calls/append`,
            )
          }
        const middle = (of: readonly Taken[], figure: (one: Taken) => number): number =>
          median(of.map(figure))
        const costs = costsOf({
          hereUs: middle(here, ({ calledUs }) => calledUs),
          passUs: middle(passed, ({ calledUs }) => calledUs),
          ownUs: middle(passed, ({ otherUs }) => otherUs),
          appendMs: held.one,
          callMs: (held.large - held.one) / (callsOfLargeAppend - 1),
        })
        tell(`\n${tableOfScale(costs)}\n`)
        return [
          figureRow('processor time of a call written where it arrives', costs.hereUs, 'us', null),
          figureRow('processor time of a call passed on, where it arrives', costs.passUs, 'us', null),
          figureRow('processor time of a call passed on, at the owner', costs.ownUs, 'us', null),
          figureRow(
            'processor time of a call, PostgreSQL',
            middle([...here, ...passed], ({ postgresUs }) => postgresUs),
            'us',
            null,
          ),
          figureRow('an append of one call, alone, the fastest', costs.appendMs, 'ms', null),
          figureRow('each further call in an append, the fastest', costs.callMs * 1_000, 'us', null),
        ]
      } finally {
        await processes.stop()
      }
    })
  } finally {
    await generator.stop()
  }
}

const taken = async ({
  processes,
  generator,
  port,
  apiKey,
  seconds,
}: {
  processes: Awaited<ReturnType<typeof startApiProcesses>>
  generator: LoadGenerator
  port: number
  apiKey: string
  seconds: number
}): Promise<Taken> => {
  const from = await processes.figures()
  const { answered } = await generator.run({
    places: [{ port, apiKeys: [apiKey] }],
    ...{ connections, seconds, rate: null, seed: 1 },
  })
  const to = await processes.figures()
  const perCall = (ms: number): number => (ms * 1_000) / answered
  const each = to.serviceMsEach.map((ms, i) => perCall(ms - (from.serviceMsEach[i] ?? 0)))
  return {
    calledUs: each[0] ?? Number.NaN,
    otherUs: each[1] ?? Number.NaN,
    postgresUs: perCall(to.postgresMs - from.postgresMs),
    callsPerAppend: (to.commands - from.commands) / Math.max(1, to.appends - from.appends),
  }
}

/**
 * From handing over an append until it is durable, with nothing else under way: longer than the head row is locked. The
 * fastest of all: what took longer waited for something else on the machine.
 */
const headHeldMs = async (eventLog: EventLog): Promise<{ one: number; large: number }> => {
  const timed = async (events: number): Promise<number> => {
    const stream = `ledger-bench${randomUUID().replaceAll('-', '')}`
    const tookMs: number[] = []
    for (let n = 0; n < appendsTimed; n++) {
      const batch = Array.from({ length: events }, newEvent)
      const startedAt = performance.now()
      await eventLog.append(stream, n === 0 ? 'none' : n * events - 1, batch)
      tookMs.push(performance.now() - startedAt)
    }
    return Math.min(...tookMs)
  }
  return { one: await timed(eventsPerCall), large: await timed(callsOfLargeAppend * eventsPerCall) }
}

const newEvent = (): NewEvent => ({
  id: randomUUID(),
  type: 'KeyUsed',
  data: JSON.stringify({
    key_id: 'l1WO9Eavc8p3Riys',
    capability: 'ip_lookup',
    outcome: 'answered',
    facts: { kind: 'ip_lookup', success: true, country_code: 'AT', address_hmac: randomUUID() },
  }),
  metadata: JSON.stringify({
    schema_version: 1,
    request_id: randomUUID(),
    actor: 'key:l1WO9Eavc8p3Riys',
    effective_at: '2026-11-21T08:25:28.821Z',
    digest: randomUUID(),
  }),
})
