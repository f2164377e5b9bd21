/** An organization with a varied history: lots, keys, and weeks of calls of every kind. */
import { ulid } from 'ulid'
import { grant } from '../../src/administration/credits/credits.ts'
import { defaultKeyLimits, issueKey, rotate } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { parseCredits } from '../../src/billing/money.ts'
import type { CallToRecord } from '../../src/ledger/command.ts'
import type { DashboardHost } from './dashboard-host.ts'

const actor = 'cli'
const dayMs = 86_400_000

export type Scene = {
  readonly organizationId: string
  readonly keyId: string
  /** The request id of a charged call. */
  readonly requestId: string
}

/** A lookup of 8.8.8.8. */
export const lookedUp = (
  { foundation: { secrets } }: Pick<DashboardHost, 'foundation'>,
  keyId: string,
  success = true,
): CallToRecord => ({
  keyId,
  capability: 'ip_lookup',
  outcome: 'answered',
  facts: {
    kind: 'ip_lookup',
    success,
    country_code: success ? 'US' : null,
    address_hmac: secrets.addressHmac('8.8.8.8'),
  },
})

/** Records a call, and returns its request id. */
export const recordCall = async (
  { foundation, prices }: Pick<DashboardHost, 'foundation' | 'prices'>,
  organizationId: string,
  call: CallToRecord,
  { atMs = Date.now(), key }: { atMs?: number; key?: string | undefined } = {},
): Promise<string> => {
  const requestId = ulid(atMs)
  await foundation.ledger.submit(organizationId, {
    key: key ?? requestId,
    atMs,
    requestId,
    actor: `key:${call.keyId}`,
    kind: 'record',
    call,
    book: prices.at(atMs),
  })
  return requestId
}

/** Makes `days` of calls up to now, or only some of them, followed by refusals because of a rate limit and missing credits. */
export const openScene = async (
  { foundation, prices, caughtUp }: Pick<DashboardHost, 'foundation' | 'prices' | 'caughtUp'>,
  {
    name = 'Northwind Traders',
    days = 40,
    everyDays = 1,
    nowMs,
  }: { name?: string; days?: number; everyDays?: number; nowMs: number },
): Promise<Scene> => {
  const { organizationId } = await createOrganization(foundation, {
    name,
    overdraftLimit: parseCredits('50'),
    actor,
  })
  const lots = [
    ['2500', 100, null, 'invoice 2026-114'],
    ['300.5', 50, new Date(nowMs + 20 * dayMs).toISOString(), 'welcome credits'],
    ['75', 200, new Date(nowMs + 90 * dayMs).toISOString(), 'goodwill after the outage'],
  ] as const
  // Submitted together, like the calls below. The ledger preserves their order and appends waiting commands together.
  await Promise.all(
    lots.map(([amount, priority, expiresAt, reason]) =>
      grant(foundation, {
        organizationId,
        priority,
        expiresAt,
        reason,
        actor,
        amount: parseCredits(amount),
      }),
    ),
  )
  const keyOf = (called: string) =>
    issueKey(foundation, {
      organizationId,
      name: called,
      limits: defaultKeyLimits,
      allowedCidrs: [],
      expiresAt: null,
      actor,
      permissions: ['ip_lookup', 'email_validation', 'profnet_scraping'],
    })
  const [{ keyId }, { keyId: other }] = [await keyOf('production'), await keyOf('nightly import')]
  await rotate(foundation, { keyId: other, graceMs: dayMs, actor })
  const record = (call: CallToRecord, atMs: number) =>
    recordCall({ foundation, prices }, organizationId, call, { atMs })
  const lookup = (by: string, success = true) => lookedUp({ foundation }, by, success)
  const recorded: Promise<unknown>[] = []
  let charged: Promise<string> | undefined
  for (let day = days - 1; day >= 0; day -= everyDays) {
    const calls = 4 + ((day * 7) % 11)
    // The calls are sorted by their times, because calls are recorded in this order.
    const batch: Promise<string>[] = []
    for (let i = calls - 1; i >= 0; i--) {
      const atMs = nowMs - day * dayMs - i * 1_800_000
      batch.push(record(lookup(i % 3 === 0 ? other : keyId, i % 4 !== 3), atMs))
    }
    if (day % 5 === 0)
      batch.push(
        record(
          {
            keyId,
            capability: 'ip_lookup',
            outcome: 'refused',
            code: 'IP_001',
            facts: { kind: 'refusal', code: 'IP_001' },
          },
          nowMs - day * dayMs,
        ),
      )
    charged = batch.at(-2)
    recorded.push(...batch)
  }
  const minute = new Date(Math.floor(nowMs / 60_000) * 60_000).toISOString()
  recorded.push(
    foundation.ledger.submit(organizationId, {
      key: `limited/${minute}`,
      atMs: nowMs,
      actor: `key:${keyId}`,
      kind: 'count_rate_limited',
      exceeded: { key_id: keyId, policy: 'minute', window: minute, count: 17 },
    }),
    record(
      {
        keyId,
        capability: 'ip_lookup',
        outcome: 'refused',
        code: 'CREDIT_001',
        facts: { kind: 'refusal', code: 'CREDIT_001' },
      },
      nowMs,
    ),
  )
  await Promise.all(recorded)
  await caughtUp()
  return { organizationId, keyId, requestId: (await charged) ?? '' }
}
