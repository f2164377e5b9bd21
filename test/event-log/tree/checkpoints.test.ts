import { mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { CheckpointFault } from '../../../src/event-log/tree/checkpoint-stream.ts'
import { askedCheckpointJob, requestCheckpoint } from '../../../src/event-log/tree/checkpoints.ts'
import { leafHash, rootFromInclusion } from '../../../src/event-log/tree/merkle-tree.ts'
import type { InclusionProof } from '../../../src/event-log/tree/prove.ts'
import { headOf } from '../../../src/event-log/tree/signed-note.ts'
import { checkpointStream } from '../../../src/events/streams.ts'
import { exhaustive } from '../../support/exhaustive.ts'
import { openTreeScene, type TreeScene } from './tree-scene.ts'

/** Checkpoints of event logs of each kind: the signatures and their keys, and how the inclusion of an event is proved to others. */

let scene: TreeScene
afterEach(() => scene.close())

const proves = ({ index, leaf, hashes, note }: InclusionProof): boolean => {
  const { size, root } = headOf(note)
  const proof = hashes.map((one) => Buffer.from(one, 'base64'))
  return (
    rootFromInclusion(leafHash(Buffer.from(leaf, 'base64url')), proof, { index, size })?.equals(root) === true
  )
}

const eventsOf = async () => {
  const events = await scene.eventLog.read('operator', { max: 2_000 })
  return events
}

test('every event up to a checkpoint can be proved, later events cannot, and the next checkpoint extends it', async () => {
  scene = await openTreeScene(exhaustive ? 'eventstoredb' : 'memory')
  await scene.write(600)
  const checkpoints = scene.checkpoints()
  expect(await checkpoints.last()).toBeNull()
  const first = await checkpoints.make()
  // The key and the tree are announced first.
  expect(first.size).toBe(602)
  const events = await eventsOf()
  for (const { position } of [events[0], events[255], events[256], events[599]].filter(
    (one) => one !== undefined,
  )) {
    const proof = await checkpoints.proofOfInclusion(position)
    expect(proof !== null && proves(proof)).toBe(true)
  }
  await scene.write(1)
  const added = (await eventsOf())[600]
  if (added === undefined) throw new Error('nothing was added')
  expect(await checkpoints.proofOfInclusion(added.position)).toBeNull()
  // Checkpoints as in another process, which has no state yet.
  const later = scene.checkpoints()
  expect((await later.make()).size).toBe(604)
  const proof = await later.proofOfInclusion(added.position)
  expect(proof).toMatchObject({ index: 603 })
  expect(proof !== null && proves(proof)).toBe(true)
  expect(await scene.store.read()).toMatchObject({ origin: first.origin, size: 604 })
})

describe('checkpoints', () => {
  test('missing or changed tiles are rebuilt, with the same roots', { skip: !exhaustive }, async () => {
    scene = await openTreeScene('memory')
    await scene.write(300)
    const checkpoints = scene.checkpoints()
    const first = await checkpoints.make()
    await scene.pool.query('delete from log_tree_tiles')
    expect((await checkpoints.make()).size).toBe(first.size + 1)
    await scene.pool.query(
      `update log_tree_tiles set hashes = set_byte(hashes, 39, 255 - get_byte(hashes, 39)) where level = 0 and index = 1`,
    )
    await checkpoints.make()
    await scene.pool.query('delete from log_tree')
    const last = await checkpoints.make()
    expect(last.size).toBe(first.size + 3)
    for (const { position } of await eventsOf()) {
      const proof = await checkpoints.proofOfInclusion(position)
      expect(proof !== null && proves(proof)).toBe(true)
    }
  })

  test('a changed tile away from the edge makes its proofs fail until the tiles are rebuilt', async () => {
    scene = await openTreeScene('memory')
    await scene.write(600)
    const checkpoints = scene.checkpoints()
    await checkpoints.make()
    await scene.pool.query(
      `update log_tree_tiles set hashes = set_byte(hashes, 39, 255 - get_byte(hashes, 39)) where level = 0 and index = 0`,
    )
    const [event] = await eventsOf()
    await expect(checkpoints.proofOfInclusion(event?.position ?? 0n)).rejects.toThrow('cannot be proved')
    await checkpoints.make({ rebuild: true })
    expect(await checkpoints.proofOfInclusion(event?.position ?? 0n)).not.toBeNull()
  })

  test('several processes at the same time each get a checkpoint that covers their events, and none is signed twice', {
    skip: !exhaustive,
  }, async () => {
    scene = await openTreeScene('postgres')
    await scene.write(700)
    const head = await scene.eventLog.head()
    const made = await Promise.all(Array.from({ length: 8 }, () => scene.checkpoints().make()))
    for (const { position } of made) expect(BigInt(position) >= head).toBe(true)
    const events = await scene.eventLog.read(checkpointStream, { max: 100 })
    expect(events.filter(({ type }) => type === 'SigningKeyAnnounced')).toHaveLength(1)
    expect(events.filter(({ type }) => type === 'LogTreeBegun')).toHaveLength(1)
    const sizes = events
      .filter(({ type }) => type === 'LogCheckpointed')
      .map(({ data }) => JSON.parse(data).size)
    expect(new Set(sizes).size).toBe(sizes.length)
    // The events of all processes form one tree.
    await scene.checkpoints().make({ rebuild: true })
  })

  test('after an event was changed together with its digest, nothing is signed', async () => {
    scene = await openTreeScene('postgres')
    await scene.write(3)
    const checkpoints = scene.checkpoints()
    await checkpoints.make()
    const { changeEvent } = await import('../../support/segments.ts')
    await changeEvent(scene.pool, { stream: 'operator', revision: 1 }, ({ data, metadata }) => ({
      data: data.replace('reason 1', 'reason x'),
      metadata: metadata.replace(/"digest":".{4}/, '"digest":"AAAA'),
    }))
    await expect(checkpoints.make({ rebuild: true })).rejects.toThrow(
      'no longer have the root that was signed',
    )
  })
})

test('any number of requests send only one job', async () => {
  scene = await openTreeScene('memory')
  const sent: unknown[] = []
  await requestCheckpoint({ send: async (...job) => void sent.push(job) })
  expect(sent).toEqual([[askedCheckpointJob, '', { afterSeconds: 20, key: 'checkpoint' }]])
})

test('every earlier size can be proved to be a prefix of the last checkpoint', async () => {
  scene = await openTreeScene('memory')
  await scene.write(300)
  const checkpoints = scene.checkpoints()
  expect(await checkpoints.proofOfConsistency(1)).toBeNull()
  const before = await checkpoints.make()
  await scene.write(300)
  const last = await checkpoints.make()
  expect(await checkpoints.proofOfConsistency(before.size)).toMatchObject({
    root: before.root,
    checkpoint: last,
  })
  for (const size of [0, 1, 255, 256, 257, last.size])
    expect(await checkpoints.proofOfConsistency(size)).toMatchObject({ size })
  await expect(checkpoints.proofOfConsistency(last.size + 1)).rejects.toThrow(
    'the last checkpoint is at 603 leaves',
  )
})

describe('the signing key', () => {
  test('is created once, readable only by its owner, and announced', async () => {
    scene = await openTreeScene('memory')
    const { note } = await scene.checkpoints().make()
    expect(await readdir(scene.keyDir)).toEqual(['checkpoint.key'])
    expect((await stat(join(scene.keyDir, 'checkpoint.key'))).mode & 0o777).toBe(0o600)
    const [announced] = await scene.eventLog.read(checkpointStream, { max: 1 })
    expect(JSON.parse(announced?.data ?? '')).toMatchObject({ previous_key_id: null, announced_by: 'system' })
    expect(note).toContain('— enrichment-ledger/')
  })

  test('a new key is announced by the previous one, and signs from then on', async () => {
    scene = await openTreeScene('memory')
    const checkpoints = scene.checkpoints()
    const before = await checkpoints.make()
    const { keyId, vouchedFor } = await checkpoints.announceKey({
      actor: 'user:ada',
      reason: 'a year has passed',
    })
    expect(vouchedFor).toBe(true)
    expect(await readdir(scene.keyDir)).toEqual(['checkpoint.key'])
    const after = await scene.checkpoints().make()
    expect(after.note.split(' ').at(-1)?.slice(0, 5)).not.toBe(before.note.split(' ').at(-1)?.slice(0, 5))
    expect(await scene.checkpoints().make()).toMatchObject({ origin: before.origin })
    const events = await scene.eventLog.read(checkpointStream, { max: 10 })
    expect(events.filter(({ data }) => JSON.parse(data).key_id === keyId)).toHaveLength(1)
  })

  test('after it is lost, nothing is signed until an operator announces another', async () => {
    scene = await openTreeScene('memory')
    await scene.checkpoints().make()
    const elsewhere = await mkdtemp(join(tmpdir(), 'signing-key-'))
    try {
      const lost = scene.checkpoints(elsewhere)
      await expect(lost.make()).rejects.toThrow('event-log announce-key --reason')
      expect(await readdir(elsewhere)).toEqual([])
      const { vouchedFor } = await lost.announceKey({ actor: 'user:ada', reason: 'the disk was destroyed' })
      expect(vouchedFor).toBe(false)
      await lost.make()
      // The old key is back, but it is no longer the signing key.
      await expect(scene.checkpoints().make()).rejects.toThrow('does not contain the key')
    } finally {
      await rm(elsewhere, { recursive: true, force: true })
    }
  })

  test('a key in the log that was not announced by its predecessor stops the signing', async () => {
    scene = await openTreeScene('memory')
    await scene.checkpoints().make()
    const [first] = await scene.eventLog.read(checkpointStream, { max: 1 })
    if (first === undefined) throw new Error('no key was announced')
    const { key_id } = JSON.parse(first.data) as { key_id: string }
    const forged = { ...JSON.parse(first.data), previous_key_id: key_id }
    await scene.eventLog.append(checkpointStream, 2, [
      { ...first, id: '00000000-0000-5000-8000-000000000001', data: JSON.stringify(forged) },
    ])
    await expect(scene.checkpoints().make()).rejects.toThrow(CheckpointFault)
  })
})
