/** Messages between a process and one it forked. */
import { describe, expect, test } from 'vitest'
import { channelPair } from '../support/channel-pair.ts'

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise(setImmediate)
}

test('what is told is heard, in order, by the listener of its kind', async () => {
  const { primary, fork } = channelPair()
  const heard: unknown[] = []
  primary.hear('one', (body) => heard.push(['one', body]))
  // Words that the channel itself might use.
  for (const kind of ['failed', 'answers', 'body']) primary.hear(kind, (body) => heard.push([kind, body]))
  for (const kind of ['failed', 'one', 'answers', 'nobody hears', 'body']) await fork.tell(kind, { of: kind })
  await turns(2)
  expect(heard).toEqual(['failed', 'one', 'answers', 'body'].map((kind) => [kind, { of: kind }]))
})

describe('a question', () => {
  test('is answered, at once or later, and questions do not mix', async () => {
    const { primary, fork } = channelPair()
    primary.answer('double', (body) => Number(body) * 2)
    primary.answer('later', async (body) => {
      await turns(3)
      return `${body} later`
    })
    fork.answer('double', (body) => `${body}${body}`)
    const asked = [
      fork.ask('later', 1),
      fork.ask('double', 2),
      primary.ask('double', 3),
      fork.ask('double', 4),
    ]
    expect(await Promise.all(asked)).toEqual(['1 later', 4, '33', 8])
  })

  test('is told that it failed, and why', async () => {
    const { primary, fork } = channelPair()
    primary.answer('throws', () => {
      throw new Error('no such thing')
    })
    primary.answer('rejects', () => Promise.reject(new Error('not now')))
    await expect(fork.ask('throws', null)).rejects.toThrow('no such thing')
    await expect(fork.ask('rejects', null)).rejects.toThrow('not now')
  })

  test('fails when the other end is gone, before or meanwhile', async () => {
    const { fork, cut } = channelPair()
    const closed: string[] = []
    fork.onClosed(() => closed.push('before'))
    const asked = fork.ask('nothing', null)
    cut()
    await expect(asked).rejects.toThrow('the other process is gone')
    await expect(fork.ask('nothing', null)).rejects.toThrow('the other process is gone')
    await fork.tell('nothing', null)
    fork.onClosed(() => closed.push('after'))
    expect([fork.isOpen(), closed]).toEqual([false, ['before', 'after']])
  })
})

test('what others send over it is not ours', async () => {
  const { primary, end } = channelPair()
  const heard: unknown[] = []
  primary.hear('one', (body) => heard.push(body))
  for (const message of [
    null,
    'text',
    7,
    { kind: 'one', body: 1 },
    { enrichment: null },
    { enrichment: { answers: 9 } },
  ])
    end.emit('message', message)
  expect(heard).toEqual([])
})
