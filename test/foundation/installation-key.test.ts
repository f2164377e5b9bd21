/** The installation key is created once, and only the SECRET_KEYs of its slots can open it. It is the only key in the event log. */
import { beforeEach, describe, expect, test } from 'vitest'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import { ConfigError } from '../../src/config.ts'
import { encodeEvent, uuidV5 } from '../../src/event-log/stored-event.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { installationStream, priceBookStream } from '../../src/events/streams.ts'
import { appendSlots, openInstallationKey, standingKeyIn } from '../../src/foundation/installation-key.ts'
import { newKeySlot, openSlots, secretKeyOf } from '../../src/guard/secrets/installation-key.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const [old, next, other] = ['old', 'next', 'other'].map((name) =>
  secretKeyOf(`the ${name} key of this installation, long enough`),
)
if (old === undefined || next === undefined || other === undefined) throw new Error('three keys')

let memory: MemoryEventLog
beforeEach(() => {
  memory = createMemoryEventLog()
})

const open = (...secretKeys: (typeof old)[]) => openInstallationKey(memory.client('one'), { secretKeys })
const hmacOf = (key: Awaited<ReturnType<typeof open>>): string => createSecrets(key).addressHmac('8.8.8.8')

describe('a slot', () => {
  test('opens with its own SECRET_KEY only, and contains the same key as another slot', () => {
    const slot = newKeySlot(old)
    const opened = openSlots([slot], [next, old])
    expect(opened?.by.id).toBe(old.id)
    expect(openSlots([slot], [next])).toBeNull()
    expect(openSlots([{ ...slot, secret_key: next.id }], [next])).toBeNull()
    expect(openSlots([{ ...slot, wrapped: newKeySlot(next).wrapped }], [old])).toBeNull()
    const second = opened?.wrapFor(next)
    if (second === undefined || opened === null) throw new Error('it opens')
    expect(openSlots([second], [next])?.key.derive('x')).toEqual(opened.key.derive('x'))
  })

  test('is different for every installation, and does not contain the SECRET_KEY', () => {
    const [one, two] = [newKeySlot(old), newKeySlot(old)]
    expect(one.wrapped).not.toBe(two.wrapped)
    expect(openSlots([one], [old])?.key.derive('x')).not.toEqual(openSlots([two], [old])?.key.derive('x'))
    expect(one.secret_key).toMatch(/^[0-9a-f]{12}$/)
  })
})

describe('an event log', () => {
  test('starts with its format and its key at the first start, and keeps both', async () => {
    const first = hmacOf(await open(old))
    expect(hmacOf(await open(old))).toBe(first)
    expect(memory.eventsOf(installationStream)).toHaveLength(2)
  })

  test('of several simultaneous first starts gets one key', async () => {
    const values = await Promise.all(
      Array.from({ length: 8 }, async (_, n) =>
        hmacOf(await openInstallationKey(memory.client(`p${n}`), { secretKeys: [old] })),
      ),
    )
    expect(new Set(values).size).toBe(1)
    expect(memory.eventsOf(installationStream)).toHaveLength(2)
  })

  test('opens and accepts another slot although other software appended to its stream', async () => {
    const first = hmacOf(await open(old))
    const client = memory.client('other')
    const foreign = Array.from({ length: 250 }, (_, n) => ({
      id: uuidV5(`foreign ${n}`),
      type: 'ValueStored',
      data: n === 0 ? 'not JSON' : '{}',
      metadata: '{}',
    }))
    await client.append(installationStream, 1, foreign)
    expect(hmacOf(await open(old))).toBe(first)
    const { slots, revision, key_check } = await standingKeyIn(client)
    const second = openSlots(slots, [old])?.wrapFor(next)
    if (second === undefined) throw new Error('it opens')
    await appendSlots(client, { expected: revision, actor: 'cli', key_check, slots: [...slots, second] })
    expect(hmacOf(await open(next))).toBe(first)
  })

  test('does not open with another SECRET_KEY, and the attempt reveals and changes nothing', async () => {
    await open(old)
    await expect(open(next)).rejects.toThrow(ConfigError)
    await expect(open(next)).rejects.toThrow(`set up with another key (id ${old.id})`)
    expect(memory.eventsOf(installationStream)).toHaveLength(2)
  })

  const holding = async (stream: string, event: DomainEvent): Promise<void> => {
    const envelope = { id: crypto.randomUUID(), actor: 'system', effectiveAt: new Date().toISOString() }
    await memory.client('earlier').append(stream, 'none', [encodeEvent(event, envelope)])
  }

  test.each<[string, string, DomainEvent]>([
    ['prices', priceBookStream, { type: 'PriceBookPublished', data: { ...defaultPriceBook, version: 1 } }],
    [
      'a key',
      installationStream,
      { type: 'InstallationKeyWrapped', data: { key_check: 'A'.repeat(43), slots: [newKeySlot(old)] } },
    ],
  ])(
    'with %s and no first event is from a release before 1.0, and is refused with a sentence',
    async (...held) => {
      const [, stream, event] = held
      await holding(stream, event)
      await expect(open(old)).rejects.toThrow(
        'EVENT_LOG_URL: this event log was written by a release before 1.0 and cannot be used with this release. Nothing was changed.',
      )
      expect(memory.eventsOf(stream)).toHaveLength(1)
    },
  )

  test('in another format is refused with a sentence', async () => {
    await holding(installationStream, { type: 'InstallationCreated', data: { format: 2 } })
    await expect(open(old)).rejects.toThrow(
      'this event log has format 2, but this release reads only format 1',
    )
  })

  test('with slots of another key is refused', async () => {
    await open(old)
    const { revision, key_check } = await standingKeyIn(memory.client('one'))
    const planted = { expected: revision, actor: 'thief', key_check, slots: [newKeySlot(other)] }
    await appendSlots(memory.client('one'), planted)
    await expect(open(other)).rejects.toThrow('SECRET_KEY')
  })
})

describe('restored with the slots of its backup', () => {
  const restoredWith =
    (...secretKeys: (typeof old)[]) =>
    async (restored: Parameters<typeof openSlots>[0]) =>
      hmacOf(await openInstallationKey(memory.client('one'), { secretKeys, restored }))

  test('is wrapped again, once, under a SECRET_KEY that has no slot', async () => {
    const first = hmacOf(await open(old))
    const { slots } = await standingKeyIn(memory.client('one'))
    expect(await restoredWith(old, next)(slots)).toBe(first)
    expect(await restoredWith(old, next)(slots)).toBe(first)
    expect(hmacOf(await open(next))).toBe(first)
    expect(memory.eventsOf(installationStream)).toHaveLength(3)
  })

  test('accepts the old SECRET_KEY of the backup if the log has a slot only for a later one', async () => {
    const first = hmacOf(await open(old))
    const { slots, revision, key_check } = await standingKeyIn(memory.client('one'))
    const later = openSlots(slots, [old])?.wrapFor(next)
    if (later === undefined) throw new Error('it opens')
    await appendSlots(memory.client('one'), { expected: revision, actor: 'cli', key_check, slots: [later] })
    await expect(open(old)).rejects.toThrow('SECRET_KEY')
    expect(await restoredWith(old)(slots)).toBe(first)
    expect([hmacOf(await open(old)), hmacOf(await open(next))]).toEqual([first, first])
  })

  test('does not get the key of another installation', async () => {
    await open(old)
    await expect(restoredWith(other)([newKeySlot(other)])).rejects.toThrow('SECRET_KEY')
    expect(memory.eventsOf(installationStream)).toHaveLength(2)
  })
})
