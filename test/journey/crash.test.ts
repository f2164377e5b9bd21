import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import { testDatabase } from '../support/postgres.ts'
import {
  cliJson,
  createPartner,
  exportLedger,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * Processes are killed under load, again and again. Every answered call must be in the ledger with its charge, and nothing may be
 * in it twice. CRASH_ROUNDS sets the number of kills; the default keeps the test suite short.
 */

const callers = 32
const answersBeforeKill = 300

type Variables = Readonly<Record<string, string>>

/** The databases and servers that the processes use, which continue to run when the processes end. */
type Prepared = {
  /** One environment for each process that answers calls. */
  readonly processes: readonly Variables[]
  /** Makes the network unreliable under load, until the returned function is called. */
  disturb(): () => void
  close(): Promise<void>
}

type Ground = { readonly name: string; readonly rounds: number; readonly prepare: () => Promise<Prepared> }

const grounds: readonly Ground[] = [
  {
    name: 'the embedded default, whose PostgreSQL is left running and taken over',
    rounds: Number(process.env.CRASH_ROUNDS ?? 1),
    prepare: async () => {
      const dataDir = await mkdtemp(join(tmpdir(), 'crash-'))
      return {
        processes: [{ DATA_DIR: dataDir }],
        disturb: () => () => undefined,
        close: () => rm(dataDir, { recursive: true, force: true }),
      }
    },
  },
  {
    name: 'two processes over a double of EventStoreDB that loses one reply in twenty and cuts every connection',
    rounds: Number(process.env.CRASH_ROUNDS ?? 1),
    prepare: async () => {
      const database = await testDatabase()
      const double = await startEventStoreDouble({ systemEventEvery: 100 })
      const random = seededRandom(7)
      const shared = {
        DATABASE_URL: database.url,
        EVENT_LOG_URL: double.url,
        SECRET_KEY: 'a secret of the test, long enough to be one',
        ROLES: 'api,projector',
      }
      return {
        processes: [shared, { ...shared, ROLES: 'api' }],
        disturb: () => {
          double.onAppend = () => (random.next() < 0.05 ? 'lose-reply' : undefined)
          // Without these cuts, each lost reply would block all answers until the append's deadline.
          const cutting = setInterval(() => double.cutConnections(), 1_000)
          return () => {
            clearInterval(cutting)
            double.onAppend = undefined
          }
        },
        close: async () => {
          const { faults } = double
          await double.close()
          await database.drop()
          expect(faults).toBeGreaterThan(0)
        },
      }
    },
  },
]

const loadDeadlineMs = 90_000

/** Checks every 5 ms. Fails after the deadline with the processes' output. */
const until = async (condition: () => boolean, services: readonly Service[]): Promise<void> => {
  for (const end = performance.now() + loadDeadlineMs; !condition(); ) {
    if (performance.now() > end)
      throw new Error(
        `too few answers in ${loadDeadlineMs} ms:\n${services.map((one) => one.output()).join('\n')}`,
      )
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/** If the connection broke with the process, the call was not answered. A call that hangs is a different fault. */
const unlessHanging = (error: unknown): undefined => {
  if (error instanceof Error && error.name === 'TimeoutError') throw error
}

let cleanUp: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const clean of cleanUp.reverse()) await clean()
  cleanUp = []
})

test.each(grounds)(
  '$rounds times killed under load: no answered call lost its charge, none was charged twice, the chain is intact ($name)',
  async ({ prepare, rounds }) => {
    const { processes, disturb, close } = await prepare()
    cleanUp.push(close)
    const [environment = {}] = processes
    const services: Service[] = []
    cleanUp.push(() => Promise.all(services.map((service) => service.end('SIGTERM'))))
    // The processes are started one after the other, because the first one prepares the database.
    for (const variables of processes) services.push(await startService(variables))
    const partner = await createPartner('1000000', environment)

    const answered: string[] = []
    for (let round = 0; round < rounds; round++) {
      const enough = answered.length + answersBeforeKill
      let killed = false
      const call = async (caller: number): Promise<void> => {
        const { apiUrl = '' } = services[caller % services.length] ?? {}
        for (let i = 0; !killed; i++) {
          const reply = await lookup(apiUrl, partner.apiKey, `8.${caller}.${i % 250}.8`).catch(unlessHanging)
          if (reply?.status === 200) answered.push(String(reply.body.request_id))
          // A process that has just started might not have read every key yet, and without its event log it refuses every call.
          else if (reply !== undefined) expect([401, 503]).toContain(reply.status)
        }
      }
      const calm = disturb()
      const calling = Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
      const victim = round % services.length
      try {
        await Promise.race([until(() => answered.length >= enough, services), calling])
        services[victim]?.child.kill('SIGKILL')
      } finally {
        killed = true
        calm()
        await calling
      }
      services[victim] = await startService(processes[victim] ?? {})
    }

    const events = await exportLedger(partner.organizationId, environment)
    const charges = events.filter(({ type }) => type === 'CreditCharged')
    const reversals = events.filter(({ type }) => type === 'CreditAdjusted')
    const chargeOf = new Map(charges.map(({ data, metadata }) => [metadata.request_id, data.charge_id]))
    const reversed = new Set(reversals.map(({ data }) => data.adjusts))
    expect(answered.filter((requestId) => !chargeOf.has(requestId))).toEqual([])
    expect(answered.filter((requestId) => reversed.has(chargeOf.get(requestId)))).toEqual([])
    expect(new Set(charges.map(({ data }) => data.charge_id)).size).toBe(charges.length)
    expect(chargeOf.size).toBe(charges.length)
    expect(reversed.size).toBe(reversals.length)
    expect(new Set(events.map(({ event_id }) => event_id)).size).toBe(events.length)
    expect(await cliJson(['ledger', 'verify', partner.organizationId], environment)).toMatchObject({
      ok: true,
    })
    const balance = await cliJson<{ balance: string }>(
      ['credits', 'balance', partner.organizationId],
      environment,
    )
    expect(balance.balance).toBe(String(1_000_000 - charges.length + reversals.length))
    const verified = await cliJson<{ ok: boolean }[]>(['projection', 'verify', '--all'], environment)
    expect(verified.every(({ ok }) => ok)).toBe(true)
  },
  600_000,
)
