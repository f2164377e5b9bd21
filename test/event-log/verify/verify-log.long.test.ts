import { afterEach, describe, expect, test } from 'vitest'
import { chain } from '../../../src/event-log/hash-chain.ts'
import type { RecordedEvent } from '../../../src/event-log/port.ts'
import { NoteFault } from '../../../src/event-log/tree/signed-note.ts'
import { type LogVerdict, verifyLog } from '../../../src/event-log/verify/verify-log.ts'
import { checkpointStream } from '../../../src/events/streams.ts'
import { restorePostgresLog } from '../../support/postgres.ts'
import { changeEvent } from '../../support/segments.ts'
import { type LogKind, openTreeScene, type TreeScene } from '../tree/tree-scene.ts'

/** The report of `event-log verify` for an intact log, and for logs that were changed without the service. */

let scene: TreeScene
afterEach(() => scene.close())

const verified = (against?: string): Promise<LogVerdict> => verifyLog(scene, { against })
const [operator, prices] = ['operator', 'pricebook']

/** 600 events in two streams, and checkpoints between them. */
const written = async (kind: LogKind): Promise<string[]> => {
  scene = await openTreeScene(kind)
  const notes: string[] = []
  for (const [count, stream] of [
    [200, operator],
    [100, prices],
    [300, operator],
  ] as const) {
    await scene.write(count, stream)
    notes.push((await scene.checkpoints().make()).note)
  }
  return notes
}

test('of an intact log, every chain and checkpoint is intact, and the log extends each checkpoint stored elsewhere', async () => {
  const notes = await written('eventstoredb')
  await scene.write(3)
  const verdict = await verified(notes[0])
  expect(verdict).toMatchObject({
    events: 608,
    streams: 3,
    faults: [],
    checkpoints: { recomputed: 3, earlier: 0, announced: [] },
    against: { verdict: 'extended' },
  })
  for (const note of notes) expect((await verified(note)).faults).toEqual([])
})

describe('a log that grows while it is read', () => {
  test('is intact', async () => {
    await written('postgres')
    let growing = Promise.resolve()
    const { faults } = await verifyLog(scene, {
      onProgress: () => {
        growing = growing.then(async () => {
          await scene.write(5)
          await scene.checkpoints().make()
        })
      },
    })
    await growing
    expect(faults).toEqual([])
  })
})

/** Rewrites a stream's chain from a revision on, as the database's owner can. */
const rechained = async (stream: string, from: number, change: (text: string) => string): Promise<void> => {
  const events = await scene.eventLog.read(stream, { from: from - 1, max: 1_000 })
  const digestOf = ({ metadata }: RecordedEvent): string => /"digest":"(.{43})"/.exec(metadata)?.[1] ?? ''
  let previous = digestOf(events[0] as RecordedEvent)
  for (const event of events.slice(1)) {
    const data = event.revision === from ? change(event.data) : event.data
    const [, open = '', recordedAt = ''] =
      /^(.*),"recorded_at":"([^"]+)","digest":/.exec(event.metadata) ?? []
    const fresh = chain(
      { ...event, data, metadata: `${open}}` },
      { stream, revision: event.revision, previous },
      recordedAt,
    )
    previous = fresh.digest
    await changeEvent(scene.pool, event, () => ({ data, metadata: fresh.event.metadata }))
  }
}

type Case = {
  readonly what: string
  readonly tamper: (notes: string[]) => Promise<unknown>
  readonly named: { stream: string; revision?: number | null; fault: string }
}

const sql = (text: string, values: unknown[] = []) => scene.pool.query(text, values)

const cases: readonly Case[] = [
  {
    what: 'one letter of an event',
    tamper: () =>
      changeEvent(scene.pool, { stream: prices, revision: 7 }, ({ data }) => ({
        data: data.replace('reason', 'treason'),
      })),
    named: { stream: prices, revision: 7, fault: 'its bytes do not match its digest' },
  },
  {
    what: 'the digest of an event',
    tamper: () =>
      changeEvent(scene.pool, { stream: operator, revision: 3 }, ({ metadata }) => ({
        metadata: metadata.replace(/"digest":".{4}/, '"digest":"AAAA'),
      })),
    named: { stream: operator, revision: 3, fault: 'its bytes do not match its digest' },
  },
  {
    what: 'an event without its digest',
    tamper: () =>
      changeEvent(scene.pool, { stream: operator, revision: 3 }, ({ metadata }) => ({
        metadata: metadata.replace(/,"digest":.*/, '}'),
      })),
    named: { stream: operator, revision: 3, fault: 'has no digest' },
  },
  {
    what: 'the first event of a stream, without its digest',
    tamper: () =>
      changeEvent(scene.pool, { stream: operator, revision: 0 }, ({ metadata }) => ({
        metadata: metadata.replace(/,"digest":.*/, '}'),
      })),
    named: { stream: operator, revision: 0, fault: 'has no digest' },
  },
  {
    what: 'a type this release does not know',
    tamper: () => changeEvent(scene.pool, { stream: operator, revision: 499 }, () => ({ type: 'Unheard' })),
    named: { stream: operator, revision: 499, fault: 'its bytes do not match its digest' },
  },
  {
    what: 'the last event of a stream, taken out',
    tamper: () =>
      sql(`delete from log_segments g using log_streams s where s.id = g.stream_id and s.name = $1`, [
        prices,
      ]),
    named: {
      stream: checkpointStream,
      revision: 3,
      fault: 'it is at position 304 of the log instead of 204',
    },
  },
  {
    what: 'the end of the log, cut off with its counters',
    tamper: async () => restorePostgresLog(scene.database.url, (await scene.eventLog.head()) - 150n),
    named: {
      stream: checkpointStream,
      revision: null,
      fault: 'the stored tree has 604 leaves, but the log has only 455',
    },
  },
  {
    what: 'the last event of a stream after the last checkpoint, taken out',
    tamper: async () => {
      await scene.write(1, prices)
      await scene.write(1, operator)
      await sql(
        `delete from log_segments where last_position = (select max(last_position) - 1 from log_segments)`,
      )
    },
    named: { stream: operator, revision: 500, fault: 'it is at position 607 of the log instead of 606' },
  },
  {
    what: 'the mark of a stream, which shows that it was longer',
    tamper: () => sql(`update log_stream_marks set revision = revision + 2 where name = $1`, [prices]),
    named: { stream: prices, revision: 100, fault: 'the stream ends before revision 101' },
  },
  {
    what: 'a whole chain, rewritten from an event on',
    tamper: () => rechained(operator, 190, (data) => data.replace('reason', 'Reason')),
    named: { stream: checkpointStream, revision: 2, fault: "the log's first 202 leaves have the root" },
  },
  {
    what: 'a checkpoint, rewritten with its chain',
    tamper: () => rechained(checkpointStream, 3, (data) => data.replace('"size":303', '"size":302')),
    named: {
      stream: checkpointStream,
      revision: 3,
      fault: 'the checkpoint does not match its note',
    },
  },
  {
    what: 'a checkpoint and its note, rewritten with its chain',
    tamper: () => rechained(checkpointStream, 3, (data) => data.replaceAll(/303/g, '302')),
    named: { stream: checkpointStream, revision: 3, fault: 'did not sign the checkpoint' },
  },
]

describe('every change is reported', () => {
  test.each(cases)('$what', async ({ tamper, named }) => {
    const notes = await written('postgres')
    await tamper(notes)
    await scene.restart()
    const { faults } = await verified()
    const [first] = faults
    expect(first).toMatchObject({ ...named, fault: expect.stringContaining(named.fault) })
  })

  test('unreadable events: their stream is named, and every other stream is read to its end', async () => {
    await written('postgres')
    await sql(
      `update log_segments g set events = substring(events for 20) from log_streams s
        where s.id = g.stream_id and s.name = $1`,
      [prices],
    )
    await changeEvent(scene.pool, { stream: operator, revision: 450 }, ({ data }) => ({
      data: data.replace('reason', 'treason'),
    }))
    const { faults } = await verified()
    expect(faults).toMatchObject([
      { stream: operator, revision: 450 },
      { stream: prices, revision: 0, event_id: null, fault: expect.stringContaining('cannot be opened') },
    ])
  })
})

describe('events that EventStoreDB hides, and would delete in its next scavenge', () => {
  const fromTheFirst = { stream: prices, revision: 0, event_id: null }
  test.each<[string, Parameters<TreeScene['administer']>[0], string]>([
    ['the oldest', (it) => it.setStreamMetadata(prices, { truncateBefore: 60 }), 'revisions 0 to 59 of'],
    ['all', (it) => it.setStreamMetadata(prices, { truncateBefore: 100 }), 'no longer returns them'],
    ['all of a deleted stream', (it) => it.deleteStream(prices), 'the stream was deleted in the event store'],
    ['all of a permanently deleted stream', (it) => it.tombstoneStream(prices), 'was deleted permanently'],
  ])('%s: their stream is named', async (_, hide, fault) => {
    await written('eventstoredb')
    await scene.administer(hide)
    const { faults } = await verified()
    expect(faults).toEqual([{ ...fromTheFirst, fault: expect.stringContaining(fault) }])
  })
})

describe('a checkpoint stored elsewhere', () => {
  test('shows that a log was rewritten completely', async () => {
    const notes = await written('postgres')
    const other = scene
    await written('postgres')
    try {
      // A different log with the same events, but with its own checkpoints.
      const { faults, against } = await verified(notes[2])
      expect(against).toMatchObject({ verdict: 'refuted' })
      expect(faults).toMatchObject([{ fault: expect.stringContaining('no key that this log announced') }])
    } finally {
      await other.close()
    }
  })

  test('shows that a log was restored from an older copy', async () => {
    const notes = await written('postgres')
    await restorePostgresLog(scene.database.url, (await scene.eventLog.head()) - 2n)
    await sql('delete from log_tree')
    await scene.restart()
    expect((await verified(notes[1])).faults).toEqual([])
    expect((await verified(notes[2])).faults).toMatchObject([
      { stream: 'the checkpoint kept outside', fault: expect.stringContaining('has only 603 leaves') },
    ])
  })

  test('an invalid checkpoint is refused', async () => {
    await written('memory')
    await expect(verified('nothing')).rejects.toThrow(NoteFault)
  })
})
