/** The reply to a random recipient: which conclusions it allows about a domain, and which results it must not affect. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { describe, expect, test } from 'vitest'
import { createRecipientOf } from '../../src/capabilities/email-validation/mailbox/probe/recipient-of.ts'
import { shortHmac } from '../../src/guard/secrets/secrets.ts'
import { closedPort } from '../support/smtp-servers.ts'
import { addressOf, ends, loopback, probeAt, scene } from './mailbox-scene.ts'

const dayMs = 86_400_000
const isRandom = (mailbox: string): boolean => /^[a-z][a-z2-9]{19}@/.test(mailbox)

describe('the random recipient', () => {
  const at = (now: number, key = 1) =>
    createRecipientOf({ hmac: shortHmac(Buffer.alloc(32, key)), clock: { now: () => now } })

  test('is the same for seven days, and differs by domain, key and week', () => {
    const start = 2_000 * 7 * dayMs
    const first = at(start)('example.com')
    expect(first).toMatch(/^[a-z][a-z2-9]{19}$/)
    expect(at(start + 7 * dayMs - 1)('example.com')).toBe(first)
    expect(
      new Set([
        first,
        at(start)('example.org'),
        at(start, 2)('example.com'),
        at(start + 7 * dayMs)('example.com'),
      ]).size,
    ).toBe(4)
  })

  test('uses every letter and digit of its alphabet, each about equally often', () => {
    const recipientOf = at(0)
    const counts = new Map<string, number>()
    for (let i = 0; i < 500; i++)
      for (const letter of recipientOf(`${i}.example`).slice(1))
        counts.set(letter, (counts.get(letter) ?? 0) + 1)
    expect(counts.size).toBe(32)
    expect(Math.min(...counts.values())).toBeGreaterThan(200)
    expect(Math.max(...counts.values())).toBeLessThan(400)
  })
})

/** A server that defers each recipient on the first attempt, and later replies `missing` to unknown recipients. */
const greylist = (putOff: string, missing: string) => {
  const seen = new Set<string>()
  return (mailbox: string): string => {
    if (!seen.has(mailbox)) {
      seen.add(mailbox)
      return putOff
    }
    return mailbox === 'ann@example.com' ? '250 2.1.5 ok' : missing
  }
}

describe('a server that accepts a recipient only the second time', () => {
  test.each([
    [
      'Postgrey',
      '450 4.2.0 <x@example.com>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/help/example.com.html',
      '550 5.1.1 <x@example.com>: Recipient address rejected: User unknown in virtual mailbox table',
    ],
    [
      'a server that uses 450 for both',
      '450 4.1.1 <x@example.com>: Recipient address rejected: unverified address: Address verification in progress',
      '450 4.1.1 <x@example.com>: Recipient address rejected: undeliverable address: unknown user: "x@example.com"',
    ],
  ])('%s: the second check returns the full answer', async (_, putOff, missing) => {
    const { ask, server } = await scene({ recipient: greylist(putOff, missing) })
    expect(await ask('ann')).toMatchObject({ outcome: 'greylisted', retryAfterSeconds: 300 })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
    const [first, random, ...then] = server.recipients()
    expect([first, then]).toEqual(['ann@example.com', ['ann@example.com', random]])
  })

  test('a missing mailbox is reported missing the second time', async () => {
    const { ask } = await scene({ recipient: greylist('451 4.7.1 Greylisted', '550 5.1.1 no such user') })
    expect(await ask('bob')).toMatchObject({ outcome: 'greylisted' })
    expect(await ask('bob')).toMatchObject({ outcome: 'mailbox_not_found' })
  })

  test('if the random recipient is refused immediately, it is not repeated in the second check', async () => {
    const greylisted = greylist('450 4.2.0 Greylisted', '')
    const { ask, server } = await scene({
      recipient: (mailbox) => (isRandom(mailbox) ? '550 5.1.1 no such user' : greylisted(mailbox)),
    })
    await ask('ann')
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
    expect(server.recipients()).toHaveLength(3)
  })
})

describe('a server that does not reveal whether it is a catch-all', () => {
  const limited = '550 5.1.1 <x@example.com> - 192.0.2.7 has sent to too many recipients this hour. IB607'
  const saying = (random: string, refusal = '550 5.1.1 no such user') => ({
    recipient: (mailbox: string) =>
      isRandom(mailbox) ? random : mailbox.startsWith('ann@') ? '250 2.1.5 ok' : refusal,
  })

  test.each([limited, '450 4.2.0 greylisted'])(
    'leaves it open with %s, until another mailbox is refused with 5.1.1',
    async (reply) => {
      const { ask, probe } = await scene(saying(reply))
      expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: null })
      expect(await ask('bob')).toMatchObject({ outcome: 'mailbox_not_found' })
      expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
      expect(await probe.probe(addressOf('ann', 'example.org'), loopback)).toMatchObject({ catchAll: null })
    },
  )

  test.each([limited, '550 5.2.1 The account is disabled'])(
    'does not prove that it knows its mailboxes with %s',
    async (refusal) => {
      const { ask } = await scene(saying('550 5.7.1 policy', refusal))
      await ask('bob')
      expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: null })
    },
  )

  test('is a catch-all if it accepted the random recipient, even if it refused others', async () => {
    const { ask } = await scene(saying('250 2.1.5 ok'))
    await ask('bob')
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: true })
  })

  test('is remembered for a day', async () => {
    let now = 1_000_000
    const { ask } = await scene(saying('550 5.7.1 policy'), {}, { now: () => now })
    await ask('bob')
    now += dayMs - 1_000
    expect(await ask('ann')).toMatchObject({ catchAll: false })
    now += 2_000
    expect(await ask('ann')).toMatchObject({ catchAll: null })
  })
})

describe('the circuit breaker', () => {
  test.each(['550 5.7.1 policy', '421 4.7.0 bye'])(
    'eight existing mailboxes at eight domains of one gateway all get an answer, for any reply to other recipients: %s',
    async (reply) => {
      const { probe } = await scene({
        recipient: (mailbox) => (mailbox.startsWith('ann@') ? '250 2.1.5 ok' : reply),
      })
      const askAll = () =>
        Promise.all(
          Array.from({ length: 8 }, (_, i) => probe.probe(addressOf('ann', `domain-${i}.example`), loopback)),
        )
      for (let round = 0; round < 2; round++)
        expect((await askAll()).map(({ outcome, catchAll }) => [outcome, catchAll])).toEqual(
          Array.from({ length: 8 }, () => ['accepted', null]),
        )
      expect(probe.status().breakersOpen).toBe(0)
    },
  )

  test('is not kept open by background checks', async () => {
    let now = 1_000_000
    const { probe, ask } = await scene(
      { greeting: '421 4.7.0 not now\r\n' },
      { breakerStrikes: 1 },
      { now: () => now },
    )
    await ask('ann')
    for (let i = 0; i < 3; i++) {
      now += 60_000
      expect(await probe.probe(addressOf('ann'), loopback, { background: true })).toMatchObject({ code: 421 })
      expect(await ask('ann')).toMatchObject({ code: null, retryAfterSeconds: 60 })
    }
    now += 60_000
    expect(await ask('ann')).toMatchObject({ code: 421 })
    expect(await ask('ann')).toMatchObject({ code: null, retryAfterSeconds: 120 })
  })

  test('is not kept open if the server refuses at RCPT either', async () => {
    let now = 1_000_000
    const { probe, ask } = await scene(
      { recipient: () => '550 5.7.1 policy' },
      { breakerStrikes: 1 },
      { now: () => now },
    )
    await ask('ann')
    now += 60_000
    await probe.probe(addressOf('ann'), loopback, { background: true })
    expect(await ask('ann')).toMatchObject({ outcome: 'blocked', code: null, retryAfterSeconds: 60 })
  })
})

describe('a first exchanger that greets with a refusal', () => {
  const greeter = async (host: string, port: number, greeting: string): Promise<void> => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined)
      socket.write(`${greeting}\r\n`)
      socket.on('data', (bytes) => {
        for (const line of bytes.toString().split('\r\n').filter(Boolean)) {
          const missing = line.startsWith('RCPT') && !line.includes('<ann@')
          socket.write(`${missing ? '550 5.1.1 no such user' : '250 2.1.5 ok'}\r\n`)
        }
      })
      ends.push(async () => void socket.destroy())
    })
    server.listen(port, host)
    await once(server, 'listening')
    ends.push(() => new Promise((resolve) => server.close(() => resolve())))
  }
  const targets = [
    { exchange: 'mx1.example.com', addresses: ['127.0.0.1'] },
    { exchange: 'mx2.example.com', addresses: ['127.0.0.2'] },
  ]

  test.each(['554 No SMTP service'])('does not end the check: %s', async (greeting) => {
    const port = await closedPort()
    await greeter('127.0.0.1', port, greeting)
    await greeter('127.0.0.2', port, '220 mx2.test ESMTP')
    const { probe } = probeAt(port)
    expect(await probe.probe(addressOf('ann'), { targets })).toMatchObject({
      outcome: 'accepted',
      catchAll: false,
    })
    expect(await probe.probe(addressOf('bob'), { targets })).toMatchObject({ outcome: 'mailbox_not_found' })
    for (let i = 0; i < 4; i++) await probe.probe(addressOf('ann'), { targets })
    expect(probe.status().breakersOpen).toBe(1)
    expect(await probe.probe(addressOf('ann'), { targets })).toMatchObject({ outcome: 'accepted' })
  })

  test('determines the result if no other exchanger answers', async () => {
    const port = await closedPort()
    await greeter('127.0.0.1', port, '554 No SMTP service')
    const { probe } = probeAt(port, { connectTimeoutMs: 500 })
    expect(await probe.probe(addressOf('ann'), { targets })).toMatchObject({ outcome: 'blocked', code: 554 })
  })
})
