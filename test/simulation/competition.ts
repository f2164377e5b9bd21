/** Two processes write to the same ledger: a busy process next to the log, and a distant process with one call per second. */
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { logger } from '../support/logger.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'
import { time } from './time.ts'

const organizationId = 'org_01K9SSSSSSSSSSSSSSSSSSSSSA'
const book = priceBookOf(defaultPriceBook)
const facts = { kind: 'ip_lookup', success: true, country_code: 'AT', address_hmac: 'A'.repeat(43) } as const
const nearMs = 2
const farMs = 20
const clientsNearby = 4
const callsFromAfar = 10

type Competing = {
  readonly seed: number
  /** The distant process cannot notify the near process that its appends are in conflict again and again. */
  readonly untold?: boolean
  /** The near process never pauses long enough for the distant one. */
  readonly shortPauses?: boolean
  /** The number of calls by the distant process. */
  readonly calls?: number
}

/** The duration of each distant call in milliseconds, and the near process's answered calls per second. */
export const simulateCompetition = async ({
  seed,
  untold = false,
  shortPauses = false,
  calls = callsFromAfar,
}: Competing): Promise<{ far: number[]; refused: number; nearPerSecond: number }> => {
  const random = seededRandom(seed)
  time.reset(Date.parse('2026-03-01T00:00:00.000Z'))
  const log = createMemoryEventLog({ now: () => time.nowMs })
  const processes: Ledger[] = []
  const start = (name: string, roundTripMs: number): Ledger => {
    const way = async (): Promise<undefined> => {
      await time.wait(roundTripMs / 2 + random.next())
      return undefined
    }
    const client = log.client(name, { onAppend: way, onRead: way })
    const back = <Value>(answer: Promise<Value>): Promise<Value> =>
      answer.finally(() => time.wait(roundTripMs / 2))
    const ledger: Ledger = createLedger({
      eventLog: {
        ...client,
        append: (...append) => back(client.append(...append)),
        read: (...read) => back(client.read(...read)),
      },
      snapshot: async () => null,
      logger,
      clock: { now: () => time.nowMs },
      random: shortPauses ? () => 1 : random.next,
      competition: {
        notify: () => {
          if (untold) return
          for (const other of processes)
            if (other !== ledger) void time.wait(roundTripMs / 2).then(() => other.competed(organizationId))
        },
      },
    })
    processes.push(ledger)
    return ledger
  }
  const [near, far] = [start('near', nearMs), start('far', farMs)]
  let sequence = 0
  const call = (ledger: Ledger): Promise<unknown> => {
    const key = `call-${sequence++}`
    return ledger.submit(organizationId, {
      key,
      requestId: key,
      atMs: time.nowMs,
      actor: 'key:K9abcdefghijklmn',
      kind: 'record',
      book,
      call: { keyId: 'K9abcdefghijklmn', capability: 'ip_lookup', outcome: 'answered', facts },
    })
  }
  const took: number[] = []
  let refused = 0
  let answeredNearby = 0
  let over = false
  const nearby = async (): Promise<void> => {
    while (!over) {
      await call(near)
      answeredNearby++
    }
  }
  const afar = async (): Promise<void> => {
    for (let n = 0; n < calls; n++) {
      const sentMs = time.nowMs
      await call(far).catch(() => {
        refused++
      })
      took.push(time.nowMs - sentMs)
      await time.wait(Math.max(0, 1_000 - (time.nowMs - sentMs)))
    }
  }
  const startedMs = time.nowMs
  const play = async (): Promise<void> => {
    const envelope = { atMs: time.nowMs, actor: 'cli' }
    await near.submit(organizationId, {
      ...envelope,
      key: 'register',
      kind: 'register',
      name: 'Example',
      overdraftLimit: 0n,
    })
    const amount = parseCredits('1000000')
    await near.submit(organizationId, {
      ...envelope,
      key: 'grant',
      kind: 'grant',
      amount,
      priority: 1,
      expiresAt: null,
      reason: 'test',
    })
    const callers = Promise.all(Array.from({ length: clientsNearby }, nearby))
    await afar()
    over = true
    await callers
  }
  let ended: unknown
  play().then(
    () => {
      ended = null
    },
    (error: unknown) => {
      ended = error ?? 'failed'
    },
  )
  await time.run(() => ended !== undefined)
  if (ended !== null) throw ended
  return { far: took, refused, nearPerSecond: (answeredNearby * 1_000) / (time.nowMs - startedMs) }
}
