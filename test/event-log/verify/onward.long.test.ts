import { afterEach, describe, expect, test } from 'vitest'
import { appendNext } from '../../../src/event-log/append-next.ts'
import { decodeEvent, encodeEvent, eventIdOf } from '../../../src/event-log/stored-event.ts'
import { verifyLog } from '../../../src/event-log/verify/verify-log.ts'
import type { LogVerified } from '../../../src/events/operator.ts'
import { operatorStream } from '../../../src/events/streams.ts'
import { verifyLogOnward } from '../../../src/jobs/own-jobs.ts'
import { logger } from '../../support/logger.ts'
import { changeEvent } from '../../support/segments.ts'
import { type LogKind, openTreeScene, type TreeScene } from '../tree/tree-scene.ts'

/** The daily run continues after the events that an earlier run verified. A signature shows only which events those are. */

const prices = 'pricebook'

let scene: TreeScene
afterEach(() => scene.close())

const opened = async (kind: LogKind): Promise<void> => {
  scene = await openTreeScene(kind)
  await scene.write(300, prices)
  await scene.write(100)
  await scene.checkpoints().make()
}

const run = async (keyDir?: string): Promise<LogVerified & { returned: number }> => {
  const { eventLog, store } = scene
  const parts = { eventLog, treeStore: store, checkpoints: scene.checkpoints(keyDir) }
  const returned = await verifyLogOnward(parts, logger)
  return { ...(await newest()), returned }
}

const newest = async (): Promise<LogVerified> => {
  const page = await scene.eventLog.read(operatorStream, { direction: 'backwards', max: 20 })
  const found = page.map(decodeEvent).find(({ type }) => type === 'LogVerified')
  if (found?.type !== 'LogVerified') throw new Error('nothing was verified')
  return found.data
}

/** Writes the event as anyone with access to the database could. */
const record = (data: LogVerified): Promise<unknown> =>
  appendNext(scene.eventLog, operatorStream, [
    encodeEvent(
      { type: 'LogVerified', data },
      { id: eventIdOf(operatorStream, 'forged', 0), actor: 'system', effectiveAt: new Date().toISOString() },
    ),
  ])

test('the first run reads the whole log, and the next run reads the events since the last checkpoint that the first one passed', async () => {
  await opened('eventstoredb')
  const first = await run()
  expect(first).toMatchObject({ after: 0, events: 403, streams: 3, checkpoints: 1, returned: 0 })
  expect(first.through?.size).toBe(402)
  await scene.write(5)
  await scene.write(7, prices)
  const { size } = await scene.checkpoints().make()
  const second = await run()
  // The run's own earlier event, the twelve new events, and the two checkpoints. The first checkpoint comes after the leaves
  // that it covers.
  expect(second).toMatchObject({ after: 402, events: 15, checkpoints: 1, returned: 0 })
  expect(second.through?.size).toBe(size)
  // Without a new checkpoint, the next run cannot start any later.
  expect((await run()).through).toEqual(second.through)
  expect((await verifyLog(scene)).faults).toEqual([])
})

test('a run that has no more time stops at the last checkpoint it passed, and several runs reach the end', async () => {
  scene = await openTreeScene('postgres')
  for (let n = 0; n < 3; n++) {
    await scene.write(4_000, prices)
    await scene.checkpoints().make()
  }
  const first = await verifyLog(scene, { readMaxMs: 0 })
  expect(first.through?.size).toBeLessThan(9_000)
  const second = await verifyLog(scene, { since: first.through })
  expect([first.faults, second.faults, second.after]).toEqual([[], [], first.through?.size])
  expect(first.events + second.events).toBeGreaterThanOrEqual((await verifyLog(scene)).events)
})

test('a change after the last verified checkpoint is found, also by the next run', async () => {
  await opened('postgres')
  const { through } = await run()
  await scene.write(5, prices)
  await changeEvent(scene.pool, { stream: prices, revision: 302 }, ({ data }) => ({
    data: data.replace('reason 4', 'reason 5'),
  }))
  await scene.restart()
  for (let n = 0; n < 2; n++) {
    const found = await run()
    expect(found).toMatchObject({ after: 402, faults: 1, returned: 1, through })
    expect(found.named[0]).toContain('pricebook revision 302')
  }
})

test('an event that does not continue the last verified event of its stream is found', async () => {
  await opened('postgres')
  await run()
  await scene.write(2, prices)
  await changeEvent(scene.pool, { stream: prices, revision: 299 }, ({ metadata }) => ({
    metadata: metadata.replace(/"digest":".{8}/, '"digest":"AAAAAAAA'),
  }))
  const { named } = await run()
  expect(named).toEqual([expect.stringContaining('pricebook revision 300')])
})

describe('the whole log is read again', () => {
  /** The last verification according to the newest event, with one member changed. */
  const claimed = async (change: (through: NonNullable<LogVerified['through']>) => void) => {
    await opened('memory')
    await run()
    const { through, ...data } = await newest()
    if (through === null) throw new Error('nothing was verified')
    change(through)
    await record({ ...data, through })
    return run()
  }

  test('if the verification is not signed with the signing key', async () => {
    await opened('memory')
    await scene.write(50)
    const { size, root, origin } = await scene.checkpoints().make()
    await run()
    const { through, ...data } = await newest()
    if (through === null) throw new Error('nothing was verified')
    // The signature is for another size.
    await scene.write(9)
    const later = await scene.checkpoints().make()
    await record({ ...data, through: { ...through, size: later.size, root: later.root } })
    expect([size, root, origin]).toEqual([through.size, through.root, through.origin])
    expect((await run()).after).toBe(0)
  })

  test.each([
    ['size', 1],
    ['root', '47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='],
    ['origin', 'enrichment-ledger/another'],
    ['signature', 'A'.repeat(86)],
  ])('if its %s is different', async (member, value) => {
    expect((await claimed((through) => Object.assign(through, { [member]: value }))).after).toBe(0)
  })

  test('if the stored tree does not have the signed root', async () => {
    await opened('postgres')
    await run()
    await scene.pool.query(
      `update log_tree_tiles set hashes = overlay(hashes placing '\\x00000000'::bytea from 1) where level = 0 and index = 1`,
    )
    expect(await run()).toMatchObject({ after: 0, faults: 0 })
  })

  test('if the stored tree is missing', async () => {
    await opened('postgres')
    expect((await run()).through).not.toBeNull()
    await scene.pool.query('delete from log_tree_tiles')
    expect((await run()).after).toBe(0)
  })
})
