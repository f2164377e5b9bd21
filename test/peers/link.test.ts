import { once } from 'node:events'
import { connect as connectTcp } from 'node:net'
import { describe, expect, test } from 'vitest'
import { startTcpProxy } from '../support/tcp-proxy.ts'
import {
  ask,
  freePort,
  type RawEnd,
  rawAnswerer,
  rawAsker,
  readyLink,
  startLink,
  startListener,
  until,
} from './scene.ts'

/** An answerer that acknowledges, and leaves the rest to the test. */
const silentAnswerer = async () => {
  const ends: RawEnd[] = []
  const address = await rawAnswerer((end) => {
    ends.push(end)
    end.send(['state', 'taking'])
  })
  return { ends, address }
}

describe('questions and answers', () => {
  test('each question gets its own answer, also where answers come in another order', async () => {
    const later: (() => void)[] = []
    const listener = await startListener({
      answer: (question, from, answer) => {
        later.unshift(() => answer({ question, from: from.id }))
        if (later.length === 3) for (const run of later) run()
      },
    })
    const link = await readyLink(listener.address)
    expect(link.id).toBe('B')
    expect(await Promise.all([1, 'zwei', { three: [3] }].map((question) => ask(link, question)))).toEqual([
      { question: 1, from: 'A' },
      { question: 'zwei', from: 'A' },
      { question: { three: [3] }, from: 'A' },
    ])
  })

  test('the questions of one turn are one frame, in their order; those of the next turn are another', async () => {
    const { ends, address } = await silentAnswerer()
    const link = await readyLink(address)
    for (const question of ['a', 'b', 'c']) {
      link.ask(question, () => undefined)
      await null
    }
    await new Promise(setImmediate)
    link.ask('d', () => undefined)
    await until(() => ends[0]?.messages.length === 2)
    expect(ends[0]?.messages).toEqual([
      ['questions', 1, 'a', 2, 'b', 3, 'c'],
      ['questions', 4, 'd'],
    ])
  })

  test('the answers of one turn are one frame', async () => {
    const answers: ((answer: unknown) => void)[] = []
    const listener = await startListener({ answer: (_question, _from, answer) => answers.push(answer) })
    const asker = await rawAsker(listener.address)
    asker.send(['questions', 7, 'x'])
    asker.send(['questions', 8, 'y', 9, 'z'])
    await until(() => answers.length === 3)
    for (const [index, answer] of answers.entries()) answer(`answer ${index}`)
    await until(() => asker.messages.length === 2)
    expect(asker.messages).toEqual([
      ['state', 'taking'],
      ['answers', 7, 'answer 0', 8, 'answer 1', 9, 'answer 2'],
    ])
  })

  test('the answers of an append leave together, ahead of what else the turn does', async () => {
    const answers: ((answer: unknown) => void)[] = []
    const listener = await startListener({ answer: (_question, _from, answer) => answers.push(answer) })
    const asker = await rawAsker(listener.address)
    asker.send(['questions', ...[1, 2, 3, 4, 5, 6].flatMap((id) => [id, 'x'])])
    await until(() => answers.length === 6)
    const [last, ...first] = answers.toReversed()
    for (const answer of first) answer('of the append')
    await null
    last?.('of what came after it')
    await until(() => asker.messages.length === 3)
    const together = [1, 2, 3, 4, 5].toReversed().flatMap((id) => [id, 'of the append'])
    expect(asker.messages).toEqual([
      ['state', 'taking'],
      ['answers', ...together],
      ['answers', 6, 'of what came after it'],
    ])
  })

  test('a turn of more than a frame may hold is several frames; a question of more is not sent', async () => {
    const listener = await startListener()
    const link = await readyLink(listener.address)
    const large = 'ü'.repeat(200_000)
    const answers = Array.from({ length: 8 }, (_, index) => ask(link, `${index}${large}`))
    expect(link.ask('x'.repeat(1_048_576), () => undefined)).toBe(false)
    expect((await Promise.all(answers)).map((answer) => String(answer)[0])).toEqual([...'01234567'])
  })

  test('an answer may be larger than a question; one over the bound, or none at all, is heard as null', async () => {
    const answers: Record<string, () => unknown> = {
      large: () => 'x'.repeat(4_000_000),
      tooLarge: () => 'x'.repeat(4_194_304),
      nothing: () => undefined,
      bigint: () => 1n,
      throws: () => {
        throw new Error('of the layer above')
      },
    }
    const listener = await startListener({
      answer: (question, _from, answer) => answer(answers[String(question)]?.()),
    })
    const link = await readyLink(listener.address)
    const [large, ...others] = await Promise.all(Object.keys(answers).map((name) => ask(link, name)))
    expect(large).toHaveLength(4_000_000)
    expect(others).toEqual([null, null, null, null])
    expect(listener.logger.lines.map(({ message }) => message)).toEqual([
      'peers: a question could not be answered',
    ])
  })

  test('what is no JSON value is a bug of the caller', async () => {
    const listener = await startListener()
    const link = await readyLink(listener.address)
    for (const question of [null, undefined, 1n, () => 1])
      expect(() => link.ask(question, () => undefined)).toThrow(TypeError)
  })

  test('an answer is heard once, and an answer to nothing is ignored', async () => {
    const { ends, address } = await silentAnswerer()
    const link = await readyLink(address)
    const heard: unknown[] = []
    link.ask('q', (answer) => heard.push(answer))
    ends[0]?.send(['answers', 1, 'first', 1, 'again', 99, 'to nothing'])
    ends[0]?.send(['answers', 1, 'again'])
    const next = ask(link, 'next')
    ends[0]?.send(['answers', 2, 'second'])
    expect(await next).toBe('second')
    expect(heard).toEqual(['first'])
  })

  test('what hears an answer may throw, and the others still hear theirs', async () => {
    const listener = await startListener()
    const link = await readyLink(listener.address)
    link.ask(1, () => {
      throw new Error('of the layer above')
    })
    expect(await ask(link, 2)).toBe(2)
    expect(link.logger.lines).toMatchObject([{ level: 'error', reason: 'of the layer above' }])
  })
})

describe('bounds of a link', () => {
  test('so many questions may be under way', async () => {
    const { ends, address } = await silentAnswerer()
    const link = await readyLink(address, { bounds: { underWayMax: 2 } })
    const first = ask(link, 1)
    expect([link.ask(2, () => undefined), link.ask(3, () => undefined)]).toEqual([true, false])
    ends[0]?.send(['answers', 1, 'one'])
    await first
    expect(link.ask(3, () => undefined)).toBe(true)
  })

  test('a peer that does not read is asked no more', async () => {
    const { ends, address } = await silentAnswerer()
    const link = await readyLink(address, { bounds: { waitingBytesMax: 3_000_000 } })
    ends[0]?.socket.pause()
    const question = 'x'.repeat(1_000_000)
    let asked = 0
    await until(() => {
      if (link.ask(question, () => undefined)) asked++
      else return true
      return false
    })
    expect(asked).toBeGreaterThan(3)
    expect(link.ready()).toBe(true)
  })

  test('a connection that stays silent is ended, and what was asked is heard as null', async () => {
    const { ends, address } = await silentAnswerer()
    const link = await readyLink(address, { bounds: { silenceMs: 60 } })
    expect(await ask(link, 'q')).toBeNull()
    const isPing = (message: unknown): boolean => JSON.stringify(message) === '["ping"]'
    expect(ends[0]?.messages.filter(isPing).length).toBeGreaterThan(2)
    expect(ends[0]?.messages.filter((message) => !isPing(message))).toEqual([['questions', 1, 'q']])
    expect(link.logger.lines).toMatchObject([{ level: 'warn', reason: 'nothing heard for 60 ms' }])
  })

  test('pings keep a connection on which nothing is asked, at both ends', async () => {
    const listener = await startListener({ bounds: { silenceMs: 60 } })
    const link = await readyLink(listener.address, { bounds: { silenceMs: 60 } })
    let changes = 0
    link.onChange(() => changes++)
    await new Promise((resolve) => setTimeout(resolve, 250))
    expect([changes, link.ready(), await ask(link, 'still')]).toEqual([0, true, 'still'])
  })

  test('a late answer is delivered as long as the connection lives', async () => {
    const { ends, address } = await silentAnswerer()
    const link = await readyLink(address, { bounds: { silenceMs: 60 } })
    const heard: unknown[] = []
    link.ask('q', (answer) => heard.push(answer))
    const end = ends[0]
    // Longer than a silence; only pongs come.
    await until(() => {
      const pings =
        end?.messages.filter((message) => Array.isArray(message) && message[0] === 'ping').length ?? 0
      end?.send(['pong'])
      return pings > 6
    })
    expect(heard).toEqual([])
    end?.send(['answers', 1, 'late'])
    await until(() => heard.length > 0)
    expect(heard).toEqual(['late'])
  })
})

describe('a link connects again', () => {
  test('when its connection is cut: open questions are heard as null, and the next ones as before', async () => {
    const listener = await startListener()
    const proxy = await startTcpProxy(listener.address)
    const link = await readyLink({ host: '127.0.0.1', port: proxy.port })
    const changes: boolean[] = []
    link.onChange(() => changes.push(link.ready()))
    const lost = proxy.loseNextReply()
    expect(await ask(link, 'lost')).toBeNull()
    await lost
    expect(link.ask('now', () => undefined)).toBe(false)
    await until(link.ready)
    expect(changes).toEqual([false, true])
    expect(await ask(link, 'again')).toBe('again')
    await link.close()
    await proxy.close()
  })

  test('until its peer is there, and says so once', async () => {
    const port = await freePort()
    const link = startLink({ host: '127.0.0.1', port })
    const changes: (readonly [boolean, boolean])[] = []
    link.onChange(() => changes.push([link.tried(), link.ready()]))
    expect(link.tried()).toBe(false)
    await until(link.tried)
    expect(link.ask('q', () => undefined)).toBe(false)
    const connected: string[] = []
    await startListener({ port, connected: (id) => connected.push(id) })
    await until(link.ready)
    expect(changes).toEqual([
      [true, false],
      [true, true],
    ])
    expect(connected).toEqual(['A'])
    expect(link.logger.lines.map(({ level, message }) => [level, message])).toEqual([
      ['warn', 'peers: the connection to B fails, trying again'],
      ['info', 'peers: the connection to B works again'],
    ])
  })

  test('not without a pause: also not to a peer that hangs up on it each time', async () => {
    let connections = 0
    const address = await rawAnswerer((end) => {
      connections++
      end.send(['state', 'taking'])
      end.socket.end()
    })
    startLink(address, { bounds: { pauseMs: 10, pauseMaxMs: 10_000 } })
    await new Promise((resolve) => setTimeout(resolve, 400))
    // The pauses are at least 5, 10, 20, 40, 80, 160 and 320 ms.
    expect(connections).toBeGreaterThan(1)
    expect(connections).toBeLessThan(8)
  })

  test('when no acknowledgement comes in time', async () => {
    const ends: RawEnd[] = []
    const address = await rawAnswerer((end) => ends.push(end))
    const link = startLink(address, { bounds: { connectMaxMs: 60 } })
    await until(() => ends.length > 1)
    expect(link.ready()).toBe(false)
    expect(link.logger.lines[0]?.reason).toBe('no acknowledgement within 60 ms')
  })

  test('an address that is none is a peer that is not there', async () => {
    const link = startLink({ host: '127.0.0.1', port: 123_456 })
    expect(link.ready()).toBe(false)
    expect(link.logger.lines).toHaveLength(1)
  })
})

describe('leaving and closing', () => {
  test('a peer that leaves is asked no more, and answers what it was asked', async () => {
    const answers: (() => void)[] = []
    const listener = await startListener({
      answer: (question, _from, answer) => answers.push(() => answer(question)),
    })
    const link = await readyLink(listener.address)
    const changes: boolean[] = []
    link.onChange(() => changes.push(link.ready()))
    const asked = ask(link, 'before')
    await until(() => answers.length === 1)
    listener.tellLeaving()
    listener.tellLeaving()
    await until(() => !link.ready())
    expect(link.ask('after', () => undefined)).toBe(false)
    const closed = listener.close()
    answers[0]?.()
    expect(await asked).toBe('before')
    await closed
    expect(changes).toEqual([false])
    expect(listener.connections()).toBe(0)
  })

  test('an asker that comes while its peer leaves is told at once', async () => {
    const listener = await startListener()
    listener.tellLeaving()
    const asker = await rawAsker(listener.address)
    await until(() => asker.messages.length === 1)
    expect(asker.messages).toEqual([['state', 'leaving']])
  })

  test('a listener that closes does not wait for a connection without a proof', async () => {
    const listener = await startListener({ bounds: { closeMaxMs: 60_000 } })
    const unproved = connectTcp(listener.address).on('error', () => undefined)
    await once(unproved, 'connect')
    const link = await readyLink(listener.address)
    await link.close()
    await until(() => listener.connections() === 0)
    const begunMs = performance.now()
    await listener.close()
    await until(() => unproved.closed)
    expect(performance.now() - begunMs).toBeLessThan(2_000)
  })

  test('a listener does not wait longer than its bound for an answer', async () => {
    const listener = await startListener({ answer: () => undefined, bounds: { closeMaxMs: 60 } })
    const link = await readyLink(listener.address)
    const asked = ask(link, 'q')
    const begunMs = performance.now()
    await listener.close()
    expect(await asked).toBeNull()
    expect(performance.now() - begunMs).toBeLessThan(2_000)
    await expect(readyLinkWithin(listener.address, 50)).resolves.toBe(false)
  })

  test('a link that is closed hears what is under way, and ends then', async () => {
    const answers: (() => void)[] = []
    const listener = await startListener({
      answer: (question, _from, answer) => answers.push(() => answer(question)),
    })
    const link = await readyLink(listener.address)
    const asked = [ask(link, 1), ask(link, 2)]
    const closed = link.close()
    expect([link.ready(), link.ask(3, () => undefined)]).toEqual([false, false])
    await until(() => answers.length === 2)
    for (const run of answers) run()
    expect(await Promise.all(asked)).toEqual([1, 2])
    await closed
    await until(() => listener.connections() === 0)
    expect([...link.logger.lines, ...listener.logger.lines]).toEqual([])
  })

  test('a link that is closed waits no longer than its bound: the rest is heard as null', async () => {
    const { ends, address } = await silentAnswerer()
    const link = await readyLink(address, { bounds: { closeMaxMs: 30 } })
    const asked = ask(link, 1)
    await Promise.all([link.close(), link.close()])
    expect(await asked).toBeNull()
    expect(ends).toHaveLength(1)
  })

  test('a link that never connected closes at once, and does not connect later', async () => {
    const port = await freePort()
    const link = startLink({ host: '127.0.0.1', port })
    await until(link.tried)
    await link.close()
    const listener = await startListener({ port })
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(listener.connections()).toBe(0)
    const waiting = startLink((await silentAnswerer()).address)
    await waiting.close()
    expect([link.ready(), waiting.ready()]).toEqual([false, false])
  })
})

const readyLinkWithin = async (address: { host: string; port: number }, ms: number): Promise<boolean> => {
  const link = startLink(address)
  await new Promise((resolve) => setTimeout(resolve, ms))
  return link.ready()
}
