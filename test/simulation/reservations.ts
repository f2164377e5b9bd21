/** Processes that agree on the owner of a ledger, and calls at each of them that hold credits while they are made. */
import { pino } from 'pino'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { answerPeers } from '../../src/ledger/answer-peers.ts'
import { createLedger } from '../../src/ledger/commit.ts'
import { passOn } from '../../src/ledger/pass-on.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'
import { createNetwork, type Station } from './network.ts'
import { time } from './time.ts'

const startMs = Date.parse('2026-03-01T00:00:00.000Z')
const organizationId = 'org_01K9SSSSSSSSSSSSSSSSSSSSSA'
const book = priceBookOf(defaultPriceBook)
const logger = pino({ level: 'silent' })
/** One credit each. */
const facts = { kind: 'ip_lookup', success: true, country_code: 'AT', address_hmac: 'A'.repeat(43) } as const
const credits = 10
const clients = 24
const callsOfClient = 20

/** How many calls held a credit at once at most, how many were turned away, and what is held by which process at the end. */
export const simulateReservations = async (
  seed: number,
): Promise<{ most: number; turnedAway: number; heldAtTheEnd: string[] }> => {
  const random = seededRandom(seed)
  time.reset(startMs)
  const log = createMemoryEventLog({ now: () => time.nowMs })
  const network = createNetwork({ random, count: () => undefined, faulty: () => false })
  const clock = { now: () => time.nowMs }
  const processes = ['one', 'two', 'three'].map((id) => {
    const slowly = async (): Promise<undefined> => {
      await time.wait(random.integer(5))
      return undefined
    }
    const eventLog = log.client(id, { onAppend: slowly, onRead: slowly })
    const local = createLedger({ eventLog, snapshot: async () => null, logger, clock })
    const station: Station = { id, alive: true, frozenUntilMs: 0, answer: answerPeers(local, { logger }) }
    network.join(station)
    return { local, ledger: passOn({ local, owners: network.ownersOf(station), monotonic: clock.now }) }
  })
  let held = 0
  let most = 0
  let turnedAway = 0
  const client = async (): Promise<void> => {
    for (let call = 0; call < callsOfClient; call++) {
      const { ledger } = random.pick(processes)
      const made = await ledger.reserve(organizationId, { facts, book, atMs: time.nowMs })
      if (made.kind === 'held') {
        most = Math.max(most, ++held)
        await time.wait(random.integer(30))
        held--
        made.release()
      } else turnedAway++
      await time.wait(random.integer(10))
    }
  }
  const heldAtTheEnd: string[] = []
  const play = async (): Promise<void> => {
    const { ledger } = random.pick(processes)
    const envelope = { atMs: time.nowMs, actor: 'cli' }
    await ledger.submit(organizationId, {
      ...{ ...envelope, key: 'register', kind: 'register', name: 'Example', overdraftLimit: 0n },
    })
    const amount = parseCredits(String(credits))
    await ledger.submit(organizationId, {
      ...{ ...envelope, key: 'grant', kind: 'grant', amount, priority: 1, expiresAt: null, reason: 'test' },
    })
    await Promise.all(Array.from({ length: clients }, client))
    await time.wait(100)
    for (const { local } of processes) {
      const figures = await local.figures(organizationId, { atMs: time.nowMs, fresh: true })
      heldAtTheEnd.push(formatCredits(figures.balance - figures.available))
    }
  }
  let over: unknown
  play().then(
    () => {
      over = null
    },
    (error: unknown) => {
      over = error ?? 'failed'
    },
  )
  await time.run(() => over !== undefined)
  if (over !== null) throw over
  return { most, turnedAway, heldAtTheEnd }
}
