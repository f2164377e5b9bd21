import { describe, expect, test } from 'vitest'
import type { MailboxEvidence, MxEvidence } from '../../src/capabilities/email-validation/evidence.ts'
import { checkHoursMax, createMailboxChecks } from '../../src/capabilities/email-validation/mailbox/checks.ts'
import { askAgain, retrySealPurpose } from '../../src/capabilities/email-validation/mailbox/probe/retry.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { processKeys } from '../support/epoch-keys.ts'
import { databaseForFile } from '../support/postgres.ts'

const database = await databaseForFile({ max: 2 })
const { pool } = database
const checks = createMailboxChecks(pool)
const sealer = processKeys({ pool, dir: database.keyDir }).sealer(retrySealPurpose)

const secrets = createSecrets('a secret of at least thirty-two characters')
const nowMs = Date.parse('2026-03-04T05:06:07.000Z')

const found: MxEvidence = {
  kind: 'found',
  implicit: false,
  records: [{ exchange: 'mx.example.com', priority: 10 }],
  targets: [{ exchange: 'mx.example.com', addresses: ['127.0.0.1'] }],
  provider: null,
}
const evidence = (more: Partial<MailboxEvidence>): MailboxEvidence => ({
  outcome: 'accepted',
  connected: true,
  catchAll: false,
  code: 250,
  enhancedCode: '2.1.5',
  retryAfterSeconds: null,
  ...more,
})

let named = 0
/** The job as a call queues it. */
const jobOf = async (email = `someone-${++named}@example.com`) => {
  const hmac = secrets.addressHmac(email)
  return { email, hmac, data: `${hmac}:${await sealer.seal(email, hmac)}` }
}

const ask = (
  data: string,
  evidenceNow: MailboxEvidence,
  { mx = found, seen = [] as string[] }: { mx?: MxEvidence; seen?: string[] } = {},
): Promise<boolean> =>
  askAgain(
    {
      exchangers: { find: async () => mx },
      mailbox: {
        probe: async ({ normalized }) => {
          seen.push(normalized)
          return evidenceNow
        },
      },
      checks,
      sealer,
      clock: { now: () => nowMs },
    },
    data,
  )

describe('the new answer', () => {
  test.each([
    evidence({}),
    evidence({ outcome: 'mailbox_not_found', catchAll: null, code: 550, enhancedCode: '5.1.1' }),
    evidence({ outcome: 'mailbox_full', catchAll: null, code: 452, enhancedCode: null }),
    evidence({ catchAll: true }),
  ])('is kept if it is about the mailbox: $outcome', async (evidenceNow) => {
    const { email, hmac, data } = await jobOf()
    const seen: string[] = []
    expect(await ask(data, evidenceNow, { seen })).toBe(true)
    expect(seen).toEqual([email])
    await pool.query('update mailbox_checks set checked_at = now() where address_hmac = $1', [hmac])
    expect((await checks.find(hmac))?.evidence).toEqual(evidenceNow)
  })

  test.each([
    // The recipient is accepted, but it is unknown whether the server accepts every recipient. If the answer were kept, nobody
    // could find out for a day.
    evidence({ catchAll: null }),
    evidence({ outcome: 'blocked', catchAll: null, code: 550, enhancedCode: '5.7.1' }),
    evidence({ outcome: 'cannot_verify', catchAll: null, code: 252, enhancedCode: null }),
    evidence({ outcome: 'greylisted', catchAll: null, code: 450, retryAfterSeconds: 300 }),
    evidence({ outcome: 'temporary_failure', catchAll: null, code: 451, retryAfterSeconds: 900 }),
    evidence({ outcome: 'timeout', catchAll: null, code: null, enhancedCode: null }),
    evidence({ outcome: 'timeout', connected: null, catchAll: null, code: null, enhancedCode: null }),
    evidence({ outcome: 'no_connect', connected: false, catchAll: null, code: null, enhancedCode: null }),
  ])('is not kept if the next call might learn more: $outcome', async (evidenceNow) => {
    const { hmac, data } = await jobOf()
    expect(await ask(data, evidenceNow)).toBe(false)
    expect(await rowsOf(hmac)).toEqual([])
  })

  test('is not requested if the domain no longer has mail servers', async () => {
    const { hmac, data } = await jobOf()
    const seen: string[] = []
    for (const mx of [{ kind: 'domain_not_found' }, { kind: 'dns_error', code: 'ESERVFAIL' }] as const)
      expect(await ask(data, evidence({}), { mx, seen })).toBe(false)
    expect(seen).toEqual([])
    expect(await rowsOf(hmac)).toEqual([])
  })
})

const rowsOf = async (hmac: string) =>
  (await pool.query('select * from mailbox_checks where address_hmac = $1', [hmac])).rows

describe('the queued data', () => {
  test('reveals no address, and is different every time', async () => {
    const [one, other] = [await jobOf('someone@example.com'), await jobOf('someone@example.com')]
    expect(one.data).not.toBe(other.data)
    expect(one.data).toMatch(/^[\w-]{43}:\d+-[\w-]{8}\.[\w-]+$/)
  })

  test.each([
    ['', 'nothing'],
    ['abc', 'no seal'],
    [`${'A'.repeat(43)}:${'A'.repeat(80)}`, 'a seal of somebody else'],
  ])('is refused if it is %j: %s', async (data) => {
    await expect(ask(data, evidence({}))).rejects.toThrow('its epoch key no longer exists')
  })

  test('is refused for another address', async () => {
    const [one, other] = [await jobOf(), await jobOf()]
    const [, sealed] = one.data.split(':')
    await expect(ask(`${other.hmac}:${sealed}`, evidence({}))).rejects.toThrow(
      'its epoch key no longer exists',
    )
    expect(await rowsOf(other.hmac)).toEqual([])
  })
})

describe('a kept answer', () => {
  test('is replaced by a later one', async () => {
    const { hmac } = await jobOf()
    const checkedAt = new Date().toISOString()
    await checks.keep(hmac, { evidence: evidence({}), checkedAt: '2020-01-01T00:00:00.000Z' })
    const gone = evidence({ outcome: 'mailbox_disabled', catchAll: null, code: 550 })
    await checks.keep(hmac, { evidence: gone, checkedAt })
    expect(await checks.find(hmac)).toEqual({ evidence: gone, checkedAt })
  })

  test.each([true, false, null])('is read with any value for the connection: %s', async (connected) => {
    const { hmac } = await jobOf()
    const kept = { evidence: evidence({ connected }), checkedAt: new Date().toISOString() }
    await checks.keep(hmac, kept)
    expect(await checks.find(hmac)).toEqual(kept)
  })

  test('is used for a day and then deleted; newer ones stay', async () => {
    const [old, young] = [(await jobOf()).hmac, (await jobOf()).hmac]
    const hourMs = 3_600_000
    const agoMs = (ms: number): string => new Date(Date.now() - ms).toISOString()
    await checks.keep(old, { evidence: evidence({}), checkedAt: agoMs(checkHoursMax * hourMs + 1_000) })
    await checks.keep(young, { evidence: evidence({}), checkedAt: agoMs(checkHoursMax * hourMs - 60_000) })
    expect(await checks.find(old)).toBeNull()
    expect(await checks.find(young)).not.toBeNull()
    expect(await checks.forget()).toBeGreaterThanOrEqual(1)
    expect(await rowsOf(old)).toEqual([])
    expect(await rowsOf(young)).toHaveLength(1)
    expect(await checks.forget()).toBe(0)
  })
})
