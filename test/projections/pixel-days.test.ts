/** The rows of `pixel_days` for a series of calls are the same for any division into batches. */
import { expect, test } from 'vitest'
import { pixelDays } from '../../projections/pixel-days.ts'
import type { ProjectedEvent } from '../../projections/projection.ts'
import type { PixelFacts } from '../../src/events/pixel.ts'

const organization = 'org_01JAAAAAAAAAAAAAAAAAAAAAAA'

const call = (at: string, facts: Partial<PixelFacts>, of = organization): ProjectedEvent => ({
  id: '',
  position: 1n,
  stream: `ledger-${of}`,
  revision: 1,
  recordedAtMs: 0,
  metadata: {
    schema_version: 1,
    actor: 'key:0123456789abcdef',
    effective_at: at,
    recorded_at: at,
    digest: 'D'.repeat(43),
  },
  type: 'KeyUsed',
  data: {
    key_id: '0123456789abcdef',
    capability: 'pixel',
    outcome: 'answered',
    facts: { kind: 'pixel', action: 'decided', domain: null, fire: null, ...facts },
  },
})

const other = 'org_01JBBBBBBBBBBBBBBBBBBBBBBB'
const events = [
  call('2026-12-31T23:59:59.999Z', { domain: 'a.example.com', fire: true }),
  call('2027-01-01T00:00:00.000Z', { domain: 'a.example.com', fire: true }),
  call('2027-01-01T00:00:01.000Z', { domain: 'a.example.com', fire: false }),
  call('2027-01-01T00:00:01.000Z', { domain: 'a.example.com', fire: false }),
  call('2027-01-01T00:00:02.000Z', { domain: null, fire: false }),
  call('2027-01-01T00:00:03.000Z', { domain: 'a.example.com', fire: true }, other),
  // This call is not a hit.
  call('2027-01-01T00:00:04.000Z', { action: 'blocked', domain: 'a.example.com' }),
]

/** Adds up the batches as the database does. */
const summed = (batches: readonly (readonly ProjectedEvent[])[]) => {
  const rows = new Map<string, [number, number]>()
  for (const batch of batches)
    for (const change of pixelDays.fold(batch))
      for (const { organization_id, day, domain, fired, refused } of change.rows) {
        const cell = `${organization_id} ${day} ${domain}`
        const [a, b] = rows.get(cell) ?? [0, 0]
        rows.set(cell, [a + Number(fired), b + Number(refused)])
      }
  return rows
}

test('hits are counted by organization, UTC day and the domain that decided, the same for any batches', () => {
  const expected = new Map([
    [`${organization} 2026-12-31 a.example.com`, [1, 0]],
    [`${organization} 2027-01-01 a.example.com`, [1, 2]],
    [`${organization} 2027-01-01 `, [0, 1]],
    [`${other} 2027-01-01 a.example.com`, [1, 0]],
  ])
  expect(summed([events])).toEqual(expected)
  expect(summed(events.map((event) => [event]))).toEqual(expected)
})
