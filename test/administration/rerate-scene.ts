/** One organization, with functions that make, refund, reverse and re-rate its look-ups. */
import { pino } from 'pino'
import { applyRerate, approveRerate } from '../../src/administration/rerates/apply.ts'
import { planRerate, pricesNamed, type ReratePlan } from '../../src/administration/rerates/rerates.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { type DecodedEvent, decodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { balanceOf } from '../../src/ledger/account.ts'
import { costsOf } from '../../src/ledger/explain/call-costs.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { lookUp } from '../support/ledger-commands.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

export const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
export const startMs = Date.parse('2026-03-01T00:00:00.000Z')
export const book = priceBookOf(defaultPriceBook)
const secrets = createSecrets('a secret of the test, long enough to be one')
const checkpoints = { sign: async () => null, isSigned: async () => false }

export type Scene = Parameters<typeof applyRerate>[0]

/** State that all processes of the scene share. */
export const world = { log: createMemoryEventLog(), nowMs: startMs, calls: 0 }

export const beginAnew = (): void => {
  world.nowMs = startMs
  world.calls = 0
  world.log = createMemoryEventLog({ now: () => world.nowMs })
}

export const processOf = (name: string, change: (eventLog: EventLog) => EventLog = (same) => same): Scene => {
  const eventLog = change(world.log.client(name))
  const ledger: Ledger = createLedger({
    eventLog,
    snapshot: async () => null,
    logger: pino({ level: 'silent' }),
    clock: { now: () => world.nowMs },
    limits: { retryPauseMs: 0 },
  })
  return { eventLog, ledger, secrets, checkpoints: checkpoints as unknown as Scene['checkpoints'] }
}

/** A process, and an organization with these credits. */
export const opened = async (credits: string): Promise<Scene> => {
  const scene = processOf('a')
  const base = { atMs: startMs, actor: 'system' }
  await scene.ledger.submit(org, {
    ...base,
    key: 'register',
    kind: 'register',
    name: 'Example',
    overdraftLimit: 0n,
  })
  const grant = { kind: 'grant', priority: 1, expiresAt: null, reason: 'bought' } as const
  await scene.ledger.submit(org, { ...base, ...grant, key: 'grant', amount: parseCredits(credits) })
  return scene
}

/** Makes a look-up one second after the previous one. Returns its request id. */
export const call = async (scene: Scene, located = true, under = book): Promise<string> => {
  const requestId = `r${world.calls++}`
  await scene.ledger.submit(org, {
    key: requestId,
    requestId,
    atMs: startMs + world.calls * 1_000,
    actor: 'key:K9abcdefghijklmn',
    kind: 'record',
    call: lookUp(located),
    book: under,
  })
  return requestId
}

export const eventsOf = (): DecodedEvent[] => world.log.eventsOf(ledgerStream(org)).map(decodeEvent)

export const costOf = async (scene: Scene, requestId: string) =>
  (await costsOf(eventsOf(), { requestId }, scene))?.now

let refunds = 0
/** Refunds a call. Each refund has a new key, like an operator's command, so that it is not a repetition. */
export const refund = (
  scene: Scene,
  requestId: string,
  amount: string,
  correction: 'refund' | 'reversal' = 'refund',
): Promise<unknown> =>
  scene.ledger.submit(org, {
    key: `refund/${requestId}/${amount}/${refunds++}`,
    atMs: startMs + 500_000,
    actor: 'cli',
    kind: 'adjust',
    adjusts: eventIdOf(org, requestId, 1),
    amount: parseCredits(amount),
    reason: 'refund',
    rerateRun: null,
    correction,
  })

export const instant = (afterMs: number): string => new Date(startMs + afterMs).toISOString()

/** Prices at which a located look-up costs `located` credits and a look-up without a location costs `other`. */
export const prices = (located: string, other = '0') =>
  defaultPriceBook.rules.map((rule) =>
    rule.rule === 'ip_lookup.located'
      ? { ...rule, amount: located }
      : rule.rule === 'ip_lookup.not_located'
        ? { ...rule, sku: other === '0' ? null : 'ip_lookup', amount: other }
        : rule,
  )

export const plan = async (
  scene: Scene,
  under: ReturnType<typeof prices>,
  toMs = 400_000,
): Promise<ReratePlan> =>
  planRerate(
    scene,
    {
      book: await pricesNamed(scene, { kind: 'rules', document: under }, { from: instant(0) }),
      from: instant(0),
      to: instant(toMs),
      organizationId: null,
      organizations: [org],
      reason: 'priced anew',
      actor: 'user:ann',
    },
    () => undefined,
  )

export const approved = async (scene: Scene, planned: ReratePlan): Promise<string> => {
  const { run } = planned.proposed
  await approveRerate(scene, { run, actor: 'user:bob', twoPerson: true })
  return run
}

export const apply = (scene: Scene, run: string) =>
  applyRerate(scene, { run, actor: 'user:bob', twoPerson: true })

export const balance = async (scene: Scene): Promise<string> =>
  formatCredits(balanceOf(await scene.ledger.account(org), world.nowMs))
