/** Sessions with a mail server are few, reused, and opened at a limited rate. A server that refuses us gets no more sessions. */
import { describe, expect, test } from 'vitest'
import { createTokenBucket } from '../../src/capabilities/email-validation/mailbox/probe/lane.ts'
import type { SmtpScript } from '../support/smtp-servers.ts'
import { addressOf, loopback, only, probeAt, scene } from './mailbox-scene.ts'

const leavingAt =
  (verb: string): NonNullable<SmtpScript['reply']> =>
  (line, { cut }) => {
    if (!line.startsWith(verb)) return undefined
    cut()
    return null
  }

const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `name${i}`)

describe('sessions are reused', () => {
  test('20 checks in a row take one connection and 21 transactions', async () => {
    const { ask, server } = await scene()
    for (const name of names(20)) expect(await ask(name)).toMatchObject({ outcome: 'accepted' })
    expect(server.conversations).toHaveLength(1)
    expect(server.conversations[0]?.transactions).toBe(21)
    expect(server.conversations[0]?.said.filter((line) => line === 'RSET')).toHaveLength(20)
  })

  test('another server with the same name is another server: a session belongs to the dialled address', async () => {
    const { ask, server, probe } = await scene({}, { connectTimeoutMs: 500 })
    await ask('ann')
    const moved = { targets: [{ exchange: 'mx.example.com', addresses: ['127.0.0.2'] }] }
    expect(await probe.probe(addressOf('ann'), moved)).toMatchObject({ outcome: 'no_connect' })
    expect(server.conversations).toHaveLength(1)
  })

  test('an unused session is ended with QUIT', async () => {
    const { ask, server, probe } = await scene({}, { sessionIdleMs: 20 })
    await ask('ann')
    await expect.poll(() => server.open()).toBe(0)
    expect(server.conversations[0]?.said.at(-1)).toBe('QUIT')
    // Our side notices the end of the connection after the server does.
    await expect.poll(() => probe.status()).toMatchObject({ sessions: 0, sessionsOpened: 1 })
  })

  test('a server that allows one connection, and counts it until it closes it, never refuses one', async () => {
    const { probe, server } = await scene(
      {
        closeMs: 50,
        greeting: ({ number }) =>
          server.conversations.some((other) => other.open && other.number < number)
            ? '421 4.7.0 too many connections\r\n'
            : '220 mx.test ESMTP\r\n',
      },
      { sessionsPerAddressMax: 1, transactionsPerSessionMax: 2 },
    )
    const found = await Promise.all(names(8).map((name) => probe.probe(addressOf(name), loopback)))
    expect(found.map(({ outcome }) => outcome)).toEqual(names(8).map(() => 'accepted'))
    expect(server.conversations.length).toBeGreaterThan(4)
    expect(server.openMax()).toBe(1)
  })

  /** A server that allows one connection, and refuses this many connections after each session that has ended. */
  const countingLong = async (refusals: number) => {
    let refusalsLeft = 0
    const script: SmtpScript = {
      greeting: () => {
        if (refusalsLeft === 0) return '220 mx.test ESMTP\r\n'
        refusalsLeft--
        return '421 4.7.0 too many connections\r\n'
      },
      reply: (command) => {
        if (command === 'QUIT') refusalsLeft = refusals
        return undefined
      },
    }
    const bounds = { sessionsPerAddressMax: 1, transactionsPerSessionMax: 3, connectAgainMs: 1 }
    // The clock stands still, so that a busy machine does not change the result.
    const { probe, server } = await scene(script, bounds, { now: () => 0 })
    const found = await Promise.all(names(6).map((name) => probe.probe(addressOf(name), loopback)))
    return { outcomes: found.map(({ outcome }) => outcome), server }
  }

  test('a server that still counts a session after closing it is asked again', async () => {
    const { outcomes, server } = await countingLong(5)
    expect(outcomes).toEqual(names(6).map(() => 'accepted'))
    expect(server.conversations.filter(({ said }) => said.length === 0).length).toBeGreaterThanOrEqual(5)
  })

  test('a server that refuses six connections in a row is not asked again for the caller that waits longest', async () => {
    const { outcomes } = await countingLong(6)
    expect(outcomes.filter((outcome) => outcome === 'accepted').length).toBeGreaterThan(0)
    expect(outcomes).toContain('temporary_failure')
  })

  test('many concurrent checks exceed neither limit', async () => {
    const bounds = { transactionsPerSessionMax: 5, refusalsPerSessionMax: 3, sessionsPerAddressMax: 2 }
    const { probe, server } = await scene({ recipient: only('ann') }, bounds)
    for (let i = 0; i < 4; i++) {
      const known = Array.from({ length: 10 }, () => probe.probe(addressOf('ann'), loopback))
      const unknown = names(10).map((name) => probe.probe(addressOf(name), loopback))
      const outcomes = (await Promise.all([...known, ...unknown])).map(({ outcome }) => outcome)
      expect(new Set(outcomes)).toEqual(new Set(['accepted', 'mailbox_not_found']))
    }
    for (const { said, transactions } of server.conversations) {
      expect(transactions).toBeLessThanOrEqual(5)
      const refused = said.filter((line) => line.startsWith('RCPT') && !line.includes('<ann@'))
      expect(refused.length).toBeLessThanOrEqual(3)
    }
    expect(server.openMax()).toBe(2)
  })

  test.each<[string, NonNullable<SmtpScript['reply']>]>([
    [
      'breaks off',
      (line, { said, cut }) => {
        if (line !== 'RSET' || said.filter((other) => other === 'RSET').length < 3) return undefined
        cut()
        return null
      },
    ],
    [
      'answers 421 and disconnects',
      (line, { said }) =>
        line === 'RSET' && said.filter((other) => other === 'RSET').length === 3
          ? '421 4.7.0 too many commands\r\n'
          : undefined,
    ],
    [
      'accepts no further sender',
      (line, { transactions }) =>
        line.startsWith('MAIL') && transactions === 3 ? '451 4.7.1 too many transactions\r\n' : undefined,
    ],
  ])('if a server %s in a reused session, a new session gets the answer', async (_, reply) => {
    const { ask, server, probe } = await scene({ reply })
    for (const name of names(11)) expect(await ask(name)).toMatchObject({ outcome: 'accepted' })
    expect(server.conversations.map(({ transactions }) => transactions)).toEqual([3, 3, 3, 3])
    expect(probe.status()).toMatchObject({ breakersOpen: 0, sessionsOpened: 4 })
  })

  test('a server that disconnects in every session, new or reused, is asked twice and no more', async () => {
    const { ask, server } = await scene({
      reply: (line, { number, cut }) => {
        if (number === 1 || !line.startsWith('RCPT')) {
          if (number === 1 && line.includes('<bob@')) {
            cut()
            return null
          }
          return undefined
        }
        cut()
        return null
      },
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted' })
    expect(await ask('bob')).toMatchObject({ outcome: 'temporary_failure', connected: true })
    expect(server.recipients().filter((mailbox) => mailbox.startsWith('bob@'))).toHaveLength(2)
  })
})

describe('the load on a server', () => {
  test('30 concurrent checks take no more sessions than allowed, and all get an answer', async () => {
    const { probe, server } = await scene({ thinkMs: 2 }, { sessionsPerAddressMax: 3 })
    const found = await Promise.all(names(30).map((name) => probe.probe(addressOf(name), loopback)))
    expect(found.every(({ outcome }) => outcome === 'accepted')).toBe(true)
    expect(server.openMax()).toBe(3)
    expect(server.conversations).toHaveLength(3)
  })

  test('each check gets its own answer', async () => {
    const { probe, ask } = await scene(
      {
        recipient: (mailbox) => (/[02468]@|^ann@/.test(mailbox) ? '250 2.1.5 ok' : '550 5.1.1 no such user'),
      },
      { sessionsPerAddressMax: 1, refusalsPerSessionMax: 100 },
    )
    await ask('ann')
    const found = await Promise.all(names(20).map((name) => probe.probe(addressOf(name), loopback)))
    expect(found.map(({ outcome }) => outcome)).toEqual(
      names(20).map((name) => (/[02468]$/.test(name) ? 'accepted' : 'mailbox_not_found')),
    )
  })

  test('a server without pipelining never gets two commands at a time', async () => {
    let underWay = 0
    let most = 0
    const { probe, ask } = await scene(
      {
        offers: [],
        write: (socket, text) => {
          most = Math.max(most, ++underWay)
          setImmediate(() => {
            underWay--
            socket.write(text)
          })
        },
      },
      { sessionsPerAddressMax: 1 },
    )
    await ask('ann')
    await Promise.all(names(6).map((name) => probe.probe(addressOf(name), loopback)))
    expect(most).toBe(1)
  })

  test('a check that arrives when too many wait is refused immediately', async () => {
    const { probe, server } = await scene(
      { reply: (line) => (line.startsWith('RCPT') ? null : undefined) },
      { sessionsPerAddressMax: 1, waitingPerAddressMax: 2, totalTimeoutMs: 800 },
    )
    const first = probe.probe(addressOf('ann'), loopback)
    await expect.poll(() => server.recipients()).toHaveLength(1)
    const waiting = names(2).map((name) => probe.probe(addressOf(name), loopback))
    expect(probe.status()).toMatchObject({ waiting: 2, checksUnderWay: 3 })
    // No connection was opened for these checks, so it is not known whether one was possible.
    expect(await probe.probe(addressOf('late'), loopback)).toMatchObject({
      outcome: 'timeout',
      connected: null,
    })
    expect(await Promise.all([first, ...waiting])).toMatchObject([
      { outcome: 'timeout', connected: true },
      { outcome: 'timeout', connected: null },
      { outcome: 'timeout', connected: null },
    ])
    expect(server.conversations).toHaveLength(1)
  })

  test('a process runs no more concurrent checks than allowed', async () => {
    const { probe } = await scene({ greeting: null }, { checksMax: 1, totalTimeoutMs: 400 })
    const first = probe.probe(addressOf('ann'), loopback)
    expect(await probe.probe(addressOf('bob'), loopback)).toMatchObject({
      outcome: 'timeout',
      connected: null,
    })
    // A connection was opened, but the server sent no greeting.
    expect(await first).toMatchObject({ outcome: 'timeout', connected: false })
  })

  test('checks keep to the agreed rate', async () => {
    const { probe, server } = await scene(
      { recipient: () => '550 5.1.1 no such user' },
      { checksPerSecond: 10, checksBurst: 3, totalTimeoutMs: 500 },
    )
    const found = await Promise.all(names(30).map((name) => probe.probe(addressOf(name), loopback)))
    expect(server.recipients().length).toBeGreaterThanOrEqual(5)
    expect(server.recipients().length).toBeLessThanOrEqual(9)
    expect(found.filter(({ outcome }) => outcome === 'timeout').length).toBeGreaterThanOrEqual(21)
  })

  test('sessions are limited across all servers, and the next server takes the place of an idle session', async () => {
    const { probe, server } = await scene(
      { recipient: only('ann') },
      { sessionsMax: 1, connectTimeoutMs: 300 },
    )
    expect(await probe.probe(addressOf('ann'), loopback)).toMatchObject({ outcome: 'accepted' })
    expect(probe.status()).toMatchObject({ sessions: 1 })
    const dead = { targets: [{ exchange: 'mx.example.com', addresses: ['127.0.0.2'] }] }
    expect(await probe.probe(addressOf('bob'), dead)).toMatchObject({ outcome: 'no_connect' })
    expect(server.conversations[0]?.said.at(-1)).toBe('QUIT')
    expect(probe.status().sessions).toBe(0)
    expect(await probe.probe(addressOf('bob'), loopback)).toMatchObject({ outcome: 'mailbox_not_found' })
  })

  test('if none is idle, a check waits for one', async () => {
    let answered = false
    const { probe, server } = await scene(
      {
        thinkMs: 50,
        recipient: () => {
          answered = true
          return '550 5.1.1 no such user'
        },
      },
      // The first check ends in time only if it releases the session to another check.
      { sessionsMax: 1, connectTimeoutMs: 300, sessionIdleMs: 60_000, totalTimeoutMs: 5_000 },
    )
    const first = probe.probe(addressOf('ann'), loopback)
    await expect.poll(() => server.conversations).toHaveLength(1)
    const dead = { targets: [{ exchange: 'mx.example.com', addresses: ['127.0.0.2'] }] }
    const second = probe.probe(addressOf('bob'), dead)
    expect(await second).toMatchObject({ outcome: 'no_connect' })
    expect(answered).toBe(true)
    expect(await first).toMatchObject({ outcome: 'mailbox_not_found' })
  })

  test('addresses are forgotten, except those in use', async () => {
    const { probe, ask } = await scene({}, { addressesMax: 3, connectTimeoutMs: 300, breakerStrikes: 100 })
    await ask('ann')
    for (let i = 2; i < 12; i++) {
      const targets = [{ exchange: 'mx.example.com', addresses: [`127.0.0.${i}`] }]
      await probe.probe(addressOf('ann'), { targets })
    }
    expect(probe.status().addresses).toBeLessThanOrEqual(4)
    expect(probe.status().sessions).toBe(1)
  })
})

describe('the circuit breaker', () => {
  const bounds = { breakerStrikes: 3, sessionsPerAddressMax: 1 }

  test('repeated refusals open it for a minute; then one check is a trial, and its success closes it', async () => {
    let now = 1_000_000
    let welcome = false
    const { ask, server, probe } = await scene(
      {
        greeting: () => (welcome ? '220 mx.test\r\n' : '421 4.7.0 too many errors from your address\r\n'),
        recipient: only('ann'),
      },
      bounds,
      { now: () => now },
    )
    for (let i = 0; i < 3; i++)
      expect(await ask('ann')).toMatchObject({ outcome: 'temporary_failure', code: 421 })
    expect(probe.status().breakersOpen).toBe(1)
    expect(await ask('ann')).toEqual({
      outcome: 'temporary_failure',
      connected: null,
      catchAll: null,
      code: null,
      enhancedCode: null,
      retryAfterSeconds: 60,
    })
    expect(server.conversations).toHaveLength(3)
    now += 60_000
    expect(await ask('ann')).toMatchObject({ code: 421 })
    expect(server.conversations).toHaveLength(4)
    expect(await ask('ann')).toMatchObject({ code: null, retryAfterSeconds: 120 })
    now += 120_000
    welcome = true
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted' })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted' })
    expect(probe.status().breakersOpen).toBe(0)
  })

  test.each<[string, SmtpScript, string]>([
    ['a 421 at RCPT', { recipient: () => '421 4.7.0 go away' }, 'temporary_failure'],
    [
      'a refusal at MAIL',
      { reply: (line) => (line.startsWith('MAIL') ? '550 no\r\n' : undefined) },
      'blocked',
    ],
    ['a greeting that refuses us', { greeting: '554 no\r\n' }, 'blocked'],
  ])('%s counts', async (_, script, outcome) => {
    const { ask, server } = await scene(script, bounds)
    for (let i = 0; i < 3; i++) expect(await ask('ann')).toMatchObject({ outcome, connected: true })
    const before = server.conversations.length
    expect(await ask('ann')).toMatchObject({ outcome, connected: null, code: null })
    expect(server.conversations).toHaveLength(before)
  })

  test('a policy reply at RCPT counts once for each domain: one domain cannot block the server for others', async () => {
    const { server, probe } = await scene(
      {
        recipient: (mailbox) =>
          mailbox.endsWith('@open.test') ? '550 5.1.1 no such user' : '550 5.7.1 blocked',
      },
      bounds,
    )
    const ask = (domain: string) => probe.probe(addressOf('ann', domain), loopback)
    for (let i = 0; i < 6; i++) expect(await ask('one.test')).toMatchObject({ outcome: 'blocked', code: 550 })
    expect(probe.status().breakersOpen).toBe(0)
    expect(await ask('open.test')).toMatchObject({ outcome: 'mailbox_not_found' })
    for (const domain of ['one.test', 'two.test', 'two.test', 'one.test']) await ask(domain)
    expect(probe.status().breakersOpen).toBe(0)
    expect(await ask('three.test')).toMatchObject({ outcome: 'blocked', code: 550 })
    expect(probe.status().breakersOpen).toBe(1)
    const before = server.recipients().length
    expect(await ask('open.test')).toMatchObject({ outcome: 'blocked', connected: null, code: null })
    expect(server.recipients()).toHaveLength(before)
  })

  test('a full mailbox does not affect others: while the breaker is open, their result is a temporary failure', async () => {
    const { ask, probe } = await scene({ recipient: () => '421 4.2.2 mailbox full, closing' }, bounds)
    for (const name of names(3)) expect(await ask(name)).toMatchObject({ outcome: 'mailbox_full', code: 421 })
    expect(probe.status().breakersOpen).toBe(1)
    expect(await ask('ann')).toEqual({
      outcome: 'temporary_failure',
      connected: null,
      catchAll: null,
      code: null,
      enhancedCode: null,
      retryAfterSeconds: 60,
    })
  })

  test('if one server is skipped and another does not answer, the result reports that a server was dialled', async () => {
    const { ask, probe } = await scene({ greeting: '421 busy\r\n' }, { ...bounds, connectTimeoutMs: 300 })
    for (let i = 0; i < 3; i++) await ask('ann')
    const left = { exchange: 'mx1.example.com', addresses: ['127.0.0.1'] }
    const dead = { exchange: 'mx2.example.com', addresses: ['127.0.0.2'] }
    for (const targets of [
      [left, dead],
      [dead, left],
    ])
      expect(await probe.probe(addressOf('ann'), { targets })).toMatchObject({ connected: false })
    expect(await probe.probe(addressOf('ann'), { targets: [left] })).toMatchObject({ connected: null })
  })

  test.each<[string, SmtpScript, object, string]>([
    ['disconnects at MAIL', { reply: leavingAt('MAIL') }, {}, 'temporary_failure'],
    ['disconnects at RCPT', { reply: leavingAt('RCPT') }, {}, 'temporary_failure'],
    [
      'is silent at MAIL',
      { offers: [], reply: (line) => (line.startsWith('MAIL') ? null : undefined) },
      { replyTimeoutMs: 100 },
      'timeout',
    ],
    [
      'is silent at RCPT',
      { reply: (line) => (line.startsWith('RCPT') ? null : undefined) },
      { replyTimeoutMs: 100 },
      'timeout',
    ],
  ])('a server that %s each time counts as failing', async (_, script, more, outcome) => {
    const { ask, server, probe } = await scene(script, { ...bounds, ...more })
    for (const name of names(3)) expect(await ask(name)).toMatchObject({ outcome, connected: true })
    expect(probe.status().breakersOpen).toBe(1)
    expect(await ask('ann')).toMatchObject({ outcome, connected: null, retryAfterSeconds: 60 })
    expect(server.conversations).toHaveLength(3)
  })

  test.each<[string, SmtpScript]>([
    [
      'sends 421 together with its EHLO reply',
      { reply: (line) => (line.startsWith('EHLO') ? '250 mx.test\r\n421 4.3.2 bye\r\n' : undefined) },
    ],
    [
      'sends an extra reply with its EHLO reply',
      { reply: (line) => (line.startsWith('EHLO') ? '250 mx.test\r\n250 more\r\n' : undefined) },
    ],
    [
      'disconnects with its EHLO reply',
      { write: (socket, text) => (text.startsWith('250') ? socket.end(text) : socket.write(text)) },
    ],
  ])(
    'a server that %s is connected to only a few times, however many checks wait, and each check gets a result',
    async (_, script) => {
      const { probe, server } = await scene(script, { breakerStrikes: 5, sessionsPerAddressMax: 4 })
      const found = await Promise.all(names(60).map((name) => probe.probe(addressOf(name), loopback)))
      // Five failures open the breaker; further sessions may be opening at that moment.
      expect(server.conversations.length).toBeLessThanOrEqual(5 + 4)
      expect(probe.status()).toMatchObject({ breakersOpen: 1, waiting: 0, checksUnderWay: 0 })
      const outcomes = new Set(found.map(({ outcome }) => outcome))
      expect(
        [...outcomes].filter((outcome) => outcome !== 'temporary_failure' && outcome !== 'cannot_verify'),
      ).toEqual([])
    },
  )

  test('missing, full and greylisted mailboxes do not count', async () => {
    const replies = ['550 5.1.1 no such user', '452 4.2.2 full', '450 4.2.0 greylisted', '451 4.3.0 later']
    let asked = 0
    const { ask, probe } = await scene({ recipient: () => replies[asked++ % 4] ?? '' }, bounds)
    for (const name of names(12)) await ask(name)
    expect(probe.status().breakersOpen).toBe(0)
  })

  test('a good answer between refusals resets the count', async () => {
    let asked = 0
    const { ask, probe } = await scene(
      { recipient: () => (asked++ % 3 === 2 ? '550 5.1.1 no such user' : '550 5.7.1 policy') },
      bounds,
    )
    for (const name of names(9)) await ask(name)
    expect(probe.status().breakersOpen).toBe(0)
  })

  test('a check whose reused session broke gets no new session if the breaker has opened', async () => {
    const { ask, server } = await scene(
      {
        offers: [],
        greeting: ({ number }) => (number === 1 ? '220 mx.test\r\n' : '554 5.7.1 no\r\n'),
        reply: (line) => (line.includes('<bob@') ? null : undefined),
        recipient: () => '550 5.1.1 no such user',
      },
      { breakerStrikes: 1, sessionsPerAddressMax: 2 },
    )
    await ask('ann')
    const bob = ask('bob')
    await expect.poll(() => server.recipients()).toHaveLength(2)
    expect(await ask('eve')).toMatchObject({ outcome: 'blocked', code: 554 })
    server.conversations[0]?.cut()
    expect(await bob).toMatchObject({ outcome: 'temporary_failure', connected: true, code: null })
    expect(server.conversations).toHaveLength(2)
  })
})

test('a token bucket allows its burst, then its rate, and survives a clock that moves backwards', () => {
  const bucket = createTokenBucket({ perSecond: 10, burst: 2 })
  expect([bucket.take(0), bucket.take(0), bucket.take(0)]).toEqual([0, 0, 100])
  expect(bucket.take(100)).toBe(0)
  expect(bucket.take(50)).toBe(100)
  expect(bucket.take(150)).toBe(0)
  expect([bucket.full(150), bucket.full(350)]).toEqual([false, true])
})

describe('closing', () => {
  test('sends QUIT, waits for the reply, and refuses new checks', async () => {
    const { ask, probe, server } = await scene()
    await ask('ann')
    await probe.close()
    await expect.poll(() => server.open()).toBe(0)
    expect(server.conversations[0]?.said.at(-1)).toBe('QUIT')
    expect(await ask('ann')).toMatchObject({ outcome: 'timeout', connected: null })
    expect(probe.status()).toMatchObject({ sessions: 0, checksUnderWay: 0 })
  })

  test('ends hanging checks', async () => {
    const { ask, probe, server } = await scene({
      reply: (line) => (line.startsWith('RCPT') ? null : undefined),
    })
    const hanging = ask('ann')
    await expect.poll(() => server.recipients()).toHaveLength(1)
    await probe.close()
    expect(await hanging).toMatchObject({ outcome: 'temporary_failure', connected: true })
    expect(probe.status().sessions).toBe(0)
  })

  test('ends a session that is being opened', async () => {
    const { ask, probe, server } = await scene({ greeting: null })
    const hanging = ask('ann')
    await expect.poll(() => server.conversations).toHaveLength(1)
    await probe.close()
    expect(await hanging).toMatchObject({ outcome: 'timeout' })
    await expect.poll(() => probe.status().sessions).toBe(0)
  })

  test('a bad name or sender prevents the start', () => {
    expect(() => probeAt(25, {}, { helo: 'not a host' })).toThrow()
    expect(() => probeAt(25, {}, { mailFrom: 'a@b\r\nDATA' })).toThrow()
  })
})
