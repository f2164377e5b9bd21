import { randomUUID } from 'node:crypto'
import { binaryEvent, EventStoreDBClient } from '@eventstore/db-client'
import pino from 'pino'
import { openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import type { NewEvent } from '../../src/event-log/port.ts'
import { startEventStore } from '../support/service.ts'
import { type BenchOptions, median, type Row, ratioRow } from './row.ts'

/**
 * Compares appends through the EventStoreDB adapter with appends through the client library that it uses: one event each, with
 * equally many in progress. Uses the protocol double unless TEST_EVENTSTORE_URL names a real server; the rows show which one was
 * used.
 */

const inFlight = 64
const appendsPerRound = 8_000

const data = JSON.stringify({
  key_id: 'l1WO9Eavc8p3Riys',
  capability: 'ip_lookup',
  outcome: 'answered',
  facts: { kind: 'ip_lookup', success: true, country_code: 'AT', address_hmac: 'A'.repeat(43) },
})
const metadata = JSON.stringify({
  schema_version: 1,
  request_id: '01M7YKBQZN92PN3ABTVNQE6E12',
  actor: 'key:l1WO9Eavc8p3Riys',
  effective_at: '2026-11-21T08:25:28.821Z',
  digest: 'B'.repeat(43),
})

export const eventstoredb = async ({ rounds, begin, report }: BenchOptions): Promise<Row[]> => {
  const given = process.env.TEST_EVENTSTORE_URL
  const server = given === undefined ? await startDouble() : { url: given, stop: async () => undefined }
  const where = given === undefined ? 'on the protocol double' : 'on a real server'
  const log = openEventStoreDb({ url: server.url, logger: pino({ level: 'silent' }) })
  const client = EventStoreDBClient.connectionString(server.url)
  const bytes = { data: new Uint8Array(Buffer.from(data)), metadata: new Uint8Array(Buffer.from(metadata)) }
  const throughAdapter = async (stream: string, revision: number): Promise<void> => {
    const event: NewEvent = { id: randomUUID(), type: 'KeyUsed', data, metadata }
    await log.append(stream, revision === -1 ? 'none' : revision, [event])
  }
  const throughClient = async (stream: string, revision: number): Promise<void> => {
    await client.appendToStream(stream, binaryEvent({ type: 'KeyUsed', ...bytes }), {
      expectedRevision: revision === -1 ? 'no_stream' : BigInt(revision),
    })
  }
  try {
    begin()
    await perSecond(throughAdapter)
    await perSecond(throughClient)
    const [adapter, raw]: [number[], number[]] = [[], []]
    for (let round = 0; round < rounds; round++) {
      adapter.push(await perSecond(throughAdapter))
      raw.push(await perSecond(throughClient))
      report(
        `eventstoredb: adapter ${Math.round(adapter.at(-1) ?? 0)}/s, client ${Math.round(raw.at(-1) ?? 0)}/s`,
      )
    }
    return [
      ratioRow(`append through the EventStoreDB adapter, against the bare client, ${where}`, {
        measured: median(adapter),
        against: median(raw),
        unit: 'appends/s',
        bound: { least: 0.8 },
      }),
    ]
  } finally {
    await log.close()
    await client.dispose()
    await server.stop()
  }
}

const perSecond = async (append: (stream: string, revision: number) => Promise<void>): Promise<number> => {
  const startedAt = performance.now()
  let left = appendsPerRound
  await Promise.all(
    Array.from({ length: inFlight }, async () => {
      const stream = `ledger-${randomUUID().replaceAll('-', '')}`
      for (let revision = -1; left-- > 0; revision++) await append(stream, revision)
    }),
  )
  return (appendsPerRound * 1_000) / (performance.now() - startedAt)
}

/** `pid` is the double's process, so its processor time can be subtracted from ours. */
export const startDouble = async (): Promise<{ url: string; pid: number; stop(): Promise<void> }> => {
  const { url, child, end } = await startEventStore()
  return { url, pid: child.pid ?? 0, stop: async () => void (await end('SIGTERM')) }
}
