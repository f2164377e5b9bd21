import { afterEach, expect, test } from 'vitest'
import { copyEventLog } from '../../../src/administration/event-log/copy-event-log.ts'
import { leafHash, rootFromInclusion } from '../../../src/event-log/tree/merkle-tree.ts'
import { headOf } from '../../../src/event-log/tree/signed-note.ts'
import { verifyLog } from '../../../src/event-log/verify/verify-log.ts'
import { checkpointStream } from '../../../src/events/streams.ts'
import { exhaustive } from '../../support/exhaustive.ts'
import { type LogKind, openTreeScene, type TreeScene } from '../tree/tree-scene.ts'

/** A copied log has a new order and a new tree, whose first leaf is the last checkpoint of the old log. */

const scenes: TreeScene[] = []
const opened = async (kind: LogKind): Promise<TreeScene> => {
  const scene = await openTreeScene(kind)
  scenes.push(scene)
  return scene
}
afterEach(async () => {
  for (const scene of scenes.splice(0)) await scene.close()
})

test('a copy begins its own tree with the last checkpoint of the old log, and both logs verify', {
  skip: !exhaustive,
}, async () => {
  const [source, target] = [await opened('postgres'), await opened('eventstoredb')]
  await source.write(40, 'operator')
  const older = await source.checkpoints().make()
  await source.write(40, 'pricebook')
  await source.write(40, 'operator')
  const last = await source.checkpoints().make()
  const receipt = await source.checkpoints().proofOfInclusion(5n)
  await source.write(3, 'pricebook')

  await copyEventLog({ from: source.eventLog, to: target.eventLog })
  const again = await copyEventLog({ from: source.eventLog, to: target.eventLog })
  expect(again.already).toBe(again.events)
  const begun = await target.eventLog.read(checkpointStream, { direction: 'backwards', max: 1 })
  expect(begun.map(({ type, revision, data }) => [type, revision, JSON.parse(data).previous_note])).toEqual([
    ['LogTreeBegun', 4, last.note],
  ])

  // The installation moves with its keys, and the tiles are rebuilt.
  const moved = target.checkpoints(source.keyDir)
  const first = await moved.make()
  expect(first.origin).not.toBe(last.origin)
  // One leaf more than there are events: 123, the announcements of two keys, two checkpoints, and the new tree.
  expect(first.size).toBe(1 + 123 + 2 + 2 + 1)
  const sound = await verifyLog(target, { against: last.note })
  expect(sound).toMatchObject({
    events: 129,
    faults: [],
    checkpoints: { recomputed: 1, earlier: 2 },
    against: { verdict: 'begun_from' },
  })
  expect(await verifyLog(target, { against: older.note })).toMatchObject({
    against: { verdict: 'refuted' },
    faults: [{ fault: expect.stringContaining('A copied log proves only') }],
  })
  expect((await verifyLog(source, { against: older.note })).faults).toEqual([])

  // A proof that a partner got before the move is still valid with the checkpoint that came with it.
  const { size, root } = headOf(receipt?.note ?? '')
  const proved = rootFromInclusion(
    leafHash(Buffer.from(receipt?.leaf ?? '', 'base64url')),
    (receipt?.hashes ?? []).map((hash) => Buffer.from(hash, 'base64')),
    { index: receipt?.index ?? -1, size },
  )
  expect(proved).toEqual(root)
})

test('a log without checkpoints is copied unchanged', async () => {
  const [source, target] = [await opened('memory'), await opened('memory')]
  await source.write(4)
  expect(await copyEventLog({ from: source.eventLog, to: target.eventLog })).toMatchObject({
    events: 4,
    streams: 1,
  })
  expect(await target.eventLog.head()).toBe(4n)
})
