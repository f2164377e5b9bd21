import { afterAll, expect, test } from 'vitest'
import { copyEventLog } from '../../src/administration/event-log/copy-event-log.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import { type EventLog, logStart, type RecordedEvent } from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import type { Instruction } from '../../src/ledger/command.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { lookUp } from '../support/ledger-commands.ts'
import { logger } from '../support/logger.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cliJson, startCli } from '../support/service.ts'

/** When an installation moves, its event log is copied with every byte that a digest covers. */

const organizations = ['org_01K9ZZZZZZZZZZZZZZZZZZZZZA', 'org_01K9ZZZZZZZZZZZZZZZZZZZZZB']

const databases = [await testDatabase(), await testDatabase()] as const
const open = ({ url }: TestDatabase): EventLog => openPostgresEventLog({ url, logger })
const [source, target] = [open(databases[0]), open(databases[1])]
const ledger = createLedger({
  eventLog: source,
  snapshot: async () => null,
  logger,
  clock: { now: () => 1_700_000_000_000 },
})
const book = priceBookOf(defaultPriceBook)
for (const organization of organizations) {
  const submit = (key: string, instruction: Instruction) =>
    ledger.submit(organization, {
      key,
      requestId: key,
      atMs: 1_700_000_000_000,
      actor: 'cli',
      ...instruction,
    })
  await submit('register', { kind: 'register', name: 'Müller "日本" & Söhne', overdraftLimit: 0n })
  await submit('grant', {
    kind: 'grant',
    amount: parseCredits('5000'),
    priority: 1,
    expiresAt: null,
    reason: 'test',
  })
  await Promise.all(
    Array.from({ length: 1_200 }, (_, i) => submit(`call-${i}`, { kind: 'record', call: lookUp(), book })),
  )
}

afterAll(async () => {
  await source.close()
  await target.close()
  for (const database of databases) await database.drop()
})

const everything = async (log: EventLog): Promise<RecordedEvent[]> => {
  const events: RecordedEvent[] = []
  const head = await log.head()
  const done = new AbortController()
  for await (const item of log.subscribe({ after: logStart, prefixes: [], signal: done.signal })) {
    if (item.kind === 'events') events.push(...item.events)
    if (item.position >= head) break
  }
  done.abort()
  return events
}

const kept = ({ stream, revision, id, type, data, metadata }: RecordedEvent) => ({
  stream,
  revision,
  id,
  type,
  data,
  metadata,
})
const byStream = (events: readonly RecordedEvent[]) => Map.groupBy(events.map(kept), ({ stream }) => stream)

test('a copy that was interrupted and restarted contains every event of every stream, byte for byte, and verifies', async () => {
  let seen = 0
  const interrupted = copyEventLog({
    from: source,
    to: {
      ...target,
      append: (...append) => {
        if (++seen > 3) throw new Error('the power went off')
        return target.append(...append)
      },
    },
  })
  await expect(interrupted).rejects.toThrow('the power went off')

  const progress: number[] = []
  const copied = await copyEventLog({
    from: source,
    to: target,
    onProgress: ({ events }) => progress.push(events),
  })
  expect(copied.streams).toBe(2)
  expect(copied.already).toBeGreaterThan(0)
  expect(copied.already).toBeLessThan(copied.events)
  expect(progress.at(-1)).toBe(copied.events)
  expect(byStream(await everything(target))).toEqual(byStream(await everything(source)))
  for (const organization of organizations) {
    const [before, after] = [
      await verifyLedger(source, organization),
      await verifyLedger(target, organization),
    ]
    expect(after.fault).toBeNull()
    expect(after.digest).toBe(before.digest)
  }
  expect(await copyEventLog({ from: source, to: target })).toMatchObject({
    events: copied.events,
    already: copied.events,
  })
})

test('a target with other events is refused with stream and revision, and left unchanged', async () => {
  const other = await testDatabase()
  const log = openPostgresEventLog({ url: other.url, logger })
  try {
    const stream = ledgerStream(organizations[0] ?? '')
    await log.append(stream, 'none', [
      { id: '00000000-0000-5000-8000-000000000001', type: 'KeyUsed', data: '{}', metadata: '{}' },
    ])
    await expect(copyEventLog({ from: source, to: log })).rejects.toThrow(
      `a different event at revision 0 of ${stream}`,
    )
    expect(await log.read(stream, { max: 10 })).toHaveLength(1)
  } finally {
    await log.close()
    await other.drop()
  }
})

test('a source that changes during the copy is reported as in use; once processes no longer use it, the copy is completed', async () => {
  const [from, to] = [await testDatabase(), await testDatabase()]
  const [written, target] = [from, to].map(({ url }) => openPostgresEventLog({ url, logger })) as [
    EventLog,
    EventLog,
  ]
  const stream = ledgerStream(organizations[0] ?? '')
  const all = await source.read(stream, { max: 4 })
  const append = ({ revision, ...event }: RecordedEvent) =>
    written.append(stream, revision === 0 ? 'none' : revision - 1, [event])
  try {
    for (const event of all.slice(0, 2)) await append(event)
    const late = all.slice(2)
    const running: EventLog = {
      ...target,
      append: async (...asked) => {
        for (const event of late.splice(0)) await append(event)
        return target.append(...asked)
      },
    }
    await expect(copyEventLog({ from: written, to: running })).rejects.toThrow(
      /^2 events were written to the source during the copy/,
    )
    expect(await copyEventLog({ from: written, to: target })).toMatchObject({ events: 4 })
  } finally {
    await written.close()
    await target.close()
    await from.drop()
    await to.drop()
  }
})

test('the command copies a PostgreSQL log to an EventStoreDB double; after a kill it continues, and every digest is the same', {
  skip: !exhaustive,
}, async () => {
  const double = await startEventStoreDouble({ systemEventEvery: 100 })
  const args = ['event-log', 'copy', '--from', databases[0]?.url ?? '', '--to', double.url]
  const log = openEventStoreDb({ url: double.url, logger })
  try {
    const killed = startCli(args, {})
    double.onAppend = () => {
      if (double.appends < 4) return undefined
      killed.child.kill('SIGKILL')
      // The append was written, but its process has ended and does not receive the reply.
      return 'lose-reply'
    }
    expect((await killed.ended).code).toBeNull()
    double.onAppend = undefined
    const kept = organizations.reduce((sum, one) => sum + double.eventsOf(ledgerStream(one)).length, 0)
    const all = (await everything(source)).length
    expect(kept).toBeGreaterThan(0)
    expect(kept).toBeLessThan(all)

    const copied = await cliJson<{ events: number; already: number; streams: number }>(args, {})
    expect(copied).toMatchObject({ events: all, streams: 2 })
    expect(copied.already).toBeGreaterThan(0)
    expect(copied.already).toBeLessThanOrEqual(kept)
    expect(byStream(await everything(log))).toEqual(byStream(await everything(source)))
    for (const organization of organizations) {
      const verdict = await verifyLedger(log, organization)
      expect(verdict.fault).toBeNull()
      expect(verdict.digest).toBe((await verifyLedger(source, organization)).digest)
    }
    expect(await cliJson(args, {})).toMatchObject({ events: all, already: all })
  } finally {
    await log.close()
    await double.close()
  }
})
