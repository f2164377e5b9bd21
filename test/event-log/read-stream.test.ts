/** A stream whose events were partly deleted from the store is not read as if it were complete. */
import { expect, test } from 'vitest'
import { type EventLog, EventsUnreadable, type RecordedEvent } from '../../src/event-log/port.ts'
import { openablePages } from '../../src/event-log/read-openable.ts'
import { pagesOf } from '../../src/event-log/read-stream.ts'

const eventAt = (revision: number): RecordedEvent => ({
  position: BigInt(revision + 1),
  stream: 'ledger-a',
  revision,
  id: '',
  type: 'KeyUsed',
  data: '{}',
  metadata: '{}',
  recordedAtMs: 0,
})

/** A log whose stream has these revisions. */
const logOf = (revisions: readonly number[]): Pick<EventLog, 'read'> => ({
  read: async (_, { from = 0, max }) =>
    revisions
      .filter((revision) => revision >= from)
      .slice(0, max)
      .map(eventAt),
})

const revisionsIn = async (revisions: readonly number[], whole: boolean): Promise<number[]> => {
  const read: number[] = []
  for await (const page of pagesOf(logOf(revisions), 'ledger-a', { from: 0, pageMax: 3, whole }))
    read.push(...page.map(({ revision }) => revision))
  return read
}

test('no event is read twice after a gap', async () => {
  expect(await revisionsIn([0, 1, 5, 6, 7, 8], false)).toEqual([0, 1, 5, 6, 7, 8])
  const revisions = Array.from({ length: 2_000 }, (_, n) => (n < 500 ? n : n + 100))
  const read: number[] = []
  for await (const page of openablePages(logOf(revisions), 'ledger-a', { from: 0 }))
    read.push(...page.map(({ revision }) => revision))
  expect(read).toEqual(revisions)
})

test.each([
  [[1, 2, 3], 'revision 0'],
  [[0, 1, 5, 6], 'revisions 2 to 4'],
  [[0, 1, 2, 4], 'revision 3'],
])(
  'for a reader that needs the whole stream, an error names what is missing: %j',
  async (revisions, named) => {
    const error = await revisionsIn(revisions, true).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(EventsUnreadable)
    expect(error).toMatchObject({
      message: `${named} of ledger-a cannot be opened: they are missing from the event log; restore it from a backup`,
    })
  },
)
