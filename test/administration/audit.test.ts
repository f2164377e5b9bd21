/** Every change and its actor can be read from the event log, even if most events are calls. */
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { audit, auditPage } from '../../projections/audit.ts'
import type { ProjectedEvent } from '../../projections/projection.ts'
import { grant } from '../../src/administration/credits/credits.ts'
import { type AuditEntry, auditEntries } from '../../src/administration/event-log/audit.ts'
import { auditSentence } from '../../src/administration/event-log/audit-sentences.ts'
import { revoke } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { catchUp } from '../../src/administration/projections/catch-up.ts'
import { createUser, setDisabled } from '../../src/administration/users/user-changes.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import { auditedTypes, isAudited } from '../../src/events/audited.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { upcast } from '../../src/events/upcast.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { houseForFile } from '../support/house.ts'
import { logger } from '../support/logger.ts'

const all = { since: null, actors: null, about: null, type: null, oldestFirst: false } as const

const ada = 'user:ada'

const listed = async (
  filter: Partial<Parameters<typeof auditEntries>[1]> = {},
  max = 1_000,
): Promise<AuditEntry[]> => {
  await catchUp(house.foundation, logger)
  return Array.fromAsync(auditEntries(house.foundation, { ...all, ...filter }, { max }))
}
const said = (entries: readonly AuditEntry[]) => entries.map(({ actor, says }) => `${actor} ${says}`)

const house = await houseForFile()
const partner = await house.partner({ credits: '100' })
for (let n = 0; n < 5; n++) await house.lookup(partner, { ip: '8.8.8.8' })
const startedAt = new Date().toISOString()
const { foundation } = house
const acme = (await createOrganization(foundation, { name: 'Acme', overdraftLimit: 0n, actor: ada }))
  .organizationId
await grant(foundation, {
  organizationId: acme,
  amount: parseCredits('25'),
  priority: 100,
  expiresAt: null,
  reason: 'invoice 7',
  actor: ada,
})
await createUser(foundation, { name: 'ada', role: 'admin', organizationId: null, actor: 'cli:root' })
await createUser(foundation, { name: 'bob', role: 'viewer', organizationId: null, actor: ada })
await setDisabled(foundation, { name: 'bob', disabled: true, reason: 'left', actor: ada })
await revoke(foundation, { keyId: partner.keyId, reason: 'leaked', actor: 'cli:root' })
const atFirst = await listed({ since: startedAt })

describe('the audit', () => {
  test('lists every change by anyone as a sentence, the newest first; and no calls', async () => {
    expect(said(atFirst)).toEqual([
      `cli:root revoked the key ${partner.keyId}: leaked`,
      'user:ada disabled bob: left',
      'user:ada created the user bob as viewer',
      'cli:root created the user ada as admin',
      'user:ada granted 25 credits: invoice 7',
      `user:ada created the organization ${acme} "Acme"`,
    ])
    const types = new Set((await listed()).map(({ type }) => type))
    expect([...types].filter((type) => ['KeyUsed', 'CreditCharged'].includes(type))).toEqual([])
  })

  test('can be filtered by actor, subject and type', async () => {
    const by = async (filter: Parameters<typeof listed>[0]) => said(await listed(filter))
    expect(await by({ actors: ['user:ada'], type: 'UserDisabled' })).toEqual(['user:ada disabled bob: left'])
    expect(await by({ about: 'bob' })).toEqual([
      'user:ada disabled bob: left',
      'user:ada created the user bob as viewer',
    ])
    expect(await by({ about: acme })).toEqual([
      'user:ada granted 25 credits: invoice 7',
      `user:ada created the organization ${acme} "Acme"`,
    ])
    expect((await by({ about: partner.keyId }))[0]).toContain('revoked')
    expect(await by({ about: "bob' or true --" })).toEqual([])
    expect(await by({ actors: ['user:nobody'] })).toEqual([])
  })

  test('is complete over many pages, in both orders', async () => {
    const runId = '3f0c8f2e-1d5b-5c0e-9a51-0a6f0b7f3f10'
    const requests = Array.from({ length: 450 }, (_, n) =>
      encodeEvent(
        { type: 'JobRequested', data: { job: `job-${n}`, run_id: runId } },
        {
          id: eventIdOf(operatorStream, `many/${n}`, 0),
          actor: 'user:many',
          effectiveAt: new Date().toISOString(),
        },
      ),
    )
    for (let from = 0; from < 450; from += 10)
      await appendNext(house.foundation.eventLog, operatorStream, requests.slice(from, from + 10))
    const newest = await listed({ actors: ['user:many'] })
    expect(newest.map(({ says }) => says)).toEqual(
      Array.from({ length: 450 }, (_, n) => `requested a run of the job job-${449 - n}`),
    )
    const oldest = await listed({ actors: ['user:many'], oldestFirst: true }, 401)
    expect(oldest.map(({ says }) => says)).toEqual(
      Array.from({ length: 401 }, (_, n) => `requested a run of the job job-${n}`),
    )
  })

  test('shows nothing that is only in a row', async () => {
    const [row] = await house.query(
      `insert into audit_entries (position, at, actor, type, stream, about)
       values (9e15::bigint, now(), 'user:ada', 'CreditGranted', 'ledger-x', '{}') returning position::text`,
    )
    try {
      const [entry] = await listed({}, 1)
      expect(entry).toMatchObject({
        revision: null,
        says: 'the event log does not contain this event; only a row does',
      })
    } finally {
      await house.query('delete from audit_entries where position = $1', [row?.position])
    }
    // Makes the row's actor differ from the event's.
    await house.query(`update audit_entries set actor = 'user:eve' where type = 'UserDisabled'`)
    try {
      expect(said(await listed({ actors: ['user:eve'] }))).toEqual(['user:ada disabled bob: left'])
    } finally {
      await house.query(`update audit_entries set actor = 'user:ada' where type = 'UserDisabled'`)
    }
  })

  test('is refused if its rows have stopped, and the error says how to fix this', async () => {
    await house.query(`update projection_checkpoints set state = 'halted', error = 'x' where name = 'audit'`)
    try {
      await expect(Array.fromAsync(auditEntries(house.foundation, all, { max: 1 }))).rejects.toThrow(
        '"projection rebuild audit"',
      )
    } finally {
      await house.query(`update projection_checkpoints set state = 'live', error = null where name = 'audit'`)
    }
  })

  test('finds a few of 20,000 changes by any filter without reading all', { skip: !exhaustive }, async () => {
    await house.query(
      `insert into audit_entries (position, at, actor, type, stream, about)
       select 8e15::bigint + n, now() + n * interval '1 s', 'user:often', 'JobRequested', 'operator', array['often']
         from generate_series(1, 20000) n`,
    )
    try {
      const [table] = await house.query(
        `select c.oid::regclass::text as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'about'
          where c.relkind = 'r' and c.relname like 'audit\\_entries%'`,
      )
      await house.query(`analyze ${table?.name}`)
      for (const filter of [
        { since: new Date(Date.now() + 999 * 86_400_000).toISOString() },
        { actors: ['user:rare'] },
        { about: 'rare' },
        { type: 'MonthClosed' },
        {},
      ]) {
        const { text, values } = auditPage({ ...all, ...filter }, { after: null, max: 100 })
        const plan = JSON.stringify(await house.query(`explain ${text}`, [...values]))
        expect(plan).toMatch(/Index/)
        expect(plan).not.toMatch(/Seq Scan/)
      }
    } finally {
      await house.query('delete from audit_entries where position > 8e15')
    }
  })
})

const samples = fileURLToPath(new URL('../events/samples', import.meta.url))
const sampled = readdirSync(samples)
  .map((file): DomainEvent => {
    const { type, schema_version, data } = JSON.parse(readFileSync(`${samples}/${file}`, 'utf8'))
    return upcast(type, schema_version, data) as DomainEvent
  })
  .filter(isAudited)

describe('each kind of change', () => {
  test('has a sample here', () => {
    expect(auditedTypes.filter((type) => !sampled.some((one) => one.type === type))).toEqual([])
  })

  test('is a complete sentence', () => {
    for (const event of sampled) {
      const sentence = auditSentence(event)
      expect([event.type, sentence]).toEqual([
        event.type,
        expect.not.stringMatching(/undefined|null|NaN|\[object|^\s*$/),
      ])
      expect(sentence.length).toBeLessThan(500)
    }
  })
})

test('for a call, the fold only checks the type: it makes no row and no change', () => {
  const call = {
    type: 'KeyUsed',
    id: 'x',
    position: 7n,
    stream: `ledger-${'x'}`,
    revision: 1,
    recordedAtMs: 0,
    data: {},
    metadata: { schema_version: 1, actor: 'key:x', effective_at: '2026-01-01T00:00:00.000Z' },
  } as unknown as ProjectedEvent
  const changes = audit.fold([call, call])
  expect(changes.flatMap(({ rows }) => rows)).toEqual([])
})
