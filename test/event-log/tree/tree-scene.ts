import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EventStoreDBClient } from '@eventstore/db-client'
import pg from 'pg'
import { appendNext } from '../../../src/event-log/append-next.ts'
import { openEventStoreDb } from '../../../src/event-log/eventstoredb/index.ts'
import type { EventLog } from '../../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../../src/event-log/postgres/index.ts'
import { encodeEvent, eventIdOf } from '../../../src/event-log/stored-event.ts'
import { type Checkpoints, createCheckpoints } from '../../../src/event-log/tree/checkpoints.ts'
import { createSigningKeyFiles } from '../../../src/event-log/tree/signing-key.ts'
import { createTreeStore, type TreeStore } from '../../../src/event-log/tree/store.ts'
import { makeDataDir } from '../../../src/foundation/data-dir.ts'
import { startEventStoreDouble } from '../../support/eventstore-double.ts'
import { logger } from '../../support/logger.ts'
import { createMemoryEventLog } from '../../support/memory-event-log.ts'
import { type TestDatabase, testDatabase } from '../../support/postgres.ts'

/** An event log of each kind, a database for the tiles, and a directory for the signing key. */

export type LogKind = 'memory' | 'postgres' | 'eventstoredb'

export type TreeScene = {
  readonly eventLog: EventLog
  readonly pool: pg.Pool
  readonly database: TestDatabase
  readonly store: TreeStore
  readonly keyDir: string
  /** Changes the streams of an EventStoreDB log as an administrator of the server can. */
  administer(change: (client: EventStoreDBClient) => Promise<unknown>): Promise<void>
  /** The checkpoints as in a new process. */
  checkpoints(keyDir?: string): Checkpoints
  /** Opens the event log as in a new process, because a process notices if the log loses what it has read. */
  restart(): Promise<void>
  /** Appends events to an operator stream, several per append. */
  write(count: number, stream?: string): Promise<void>
  close(): Promise<void>
}

export const signingKeysIn = (dir: string) =>
  createSigningKeyFiles({ dir, makeDir: () => makeDataDir(dir, 'KEY_DIR') })

const appendEventsMax = 500

export const openTreeScene = async (kind: LogKind): Promise<TreeScene> => {
  const database = await testDatabase()
  const pool = new pg.Pool({ connectionString: database.url, max: 4 })
  // When the database is dropped, the server ends connections that are still closing.
  pool.on('connect', (client) => client.on('error', () => undefined))
  const keyDir = await mkdtemp(join(tmpdir(), 'signing-key-'))
  const double = kind === 'eventstoredb' ? await startEventStoreDouble({ systemEventEvery: 7 }) : null
  const memory = createMemoryEventLog()
  const openLog = (): EventLog =>
    kind === 'memory'
      ? memory.client('scene')
      : kind === 'postgres'
        ? openPostgresEventLog({ url: database.url, logger })
        : openEventStoreDb({ url: double?.url ?? '', logger })
  let eventLog = openLog()
  const store = createTreeStore(pool)
  let written = 0
  return {
    get eventLog() {
      return eventLog
    },
    pool,
    database,
    store,
    keyDir,
    administer: async (change) => {
      const client = EventStoreDBClient.connectionString(double?.url ?? '')
      await change(client).finally(() => client.dispose())
    },
    checkpoints: (dir = keyDir) => createCheckpoints({ eventLog, store, keys: signingKeysIn(dir) }),
    restart: async () => {
      await eventLog.close()
      eventLog = openLog()
    },
    write: async (count, stream = 'operator') => {
      for (let left = count; left > 0; left -= appendEventsMax)
        await appendNext(
          eventLog,
          stream,
          Array.from({ length: Math.min(left, appendEventsMax) }, () =>
            encodeEvent(
              {
                type: 'RebuildRequested',
                data: { projections: ['accounts'], reason: `reason ${written++}` },
              },
              {
                id: eventIdOf(stream, String(written), 0),
                actor: 'system',
                effectiveAt: '2026-01-01T00:00:00.000Z',
              },
            ),
          ),
        )
    },
    close: async () => {
      await eventLog.close()
      await double?.close()
      await pool.end()
      await database.drop()
      await rm(keyDir, { recursive: true, force: true })
    },
  }
}
