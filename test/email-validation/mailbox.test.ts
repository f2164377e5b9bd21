/** Each behaviour of a mail server leads to one result. */
import { describe, expect, test } from 'vitest'
import { closedPort, type SmtpScript, startSmtpServer } from '../support/smtp-servers.ts'
import { takesAtMost } from '../support/takes-at-most.ts'
import { addressOf, ends, loopback, only, probeAt, scene } from './mailbox-scene.ts'

const twoExchanges = {
  targets: [
    { exchange: 'mx1.example.com', addresses: ['127.0.0.1'] },
    { exchange: 'mx2.example.com', addresses: ['127.0.0.1'] },
  ],
}

const accepted = { outcome: 'accepted', connected: true, code: 250, enhancedCode: '2.1.5' } as const
const nothing = { catchAll: null, code: null, enhancedCode: null, retryAfterSeconds: null }

describe('replies to a recipient', () => {
  test('an existing mailbox at a domain that refuses unknown recipients is accepted, and not a catch-all', async () => {
    const { ask, server } = await scene({ recipient: only('ann') })
    expect(await ask('ann')).toEqual({ ...accepted, catchAll: false, retryAfterSeconds: null })
    expect(server.conversations[0]?.said.slice(0, 4)).toEqual([
      'EHLO probe.example.net',
      'MAIL FROM:<>',
      'RCPT TO:<ann@example.com>',
      'RSET',
    ])
  })

  test('a missing mailbox is not found, and no random recipient is tried', async () => {
    const { ask, server } = await scene({ recipient: only('ann') })
    expect(await ask('bob')).toEqual({
      ...nothing,
      outcome: 'mailbox_not_found',
      connected: true,
      code: 550,
      enhancedCode: '5.1.1',
    })
    expect(server.recipients()).toEqual(['bob@example.com'])
  })

  test.each([
    ['452 4.2.2 over quota', 'mailbox_full', null],
    ['450 4.2.0 greylisted, try again in 2 minutes', 'greylisted', 120],
    ['550 5.7.1 blocked using zen.spamhaus.org', 'blocked', null],
  ] as const)('%s', async (reply, outcome, retryAfterSeconds) => {
    const { ask, server } = await scene({ recipient: () => reply })
    expect(await ask('ann')).toMatchObject({ outcome, connected: true, retryAfterSeconds, catchAll: null })
    // A greylisting server must also see the random recipient once.
    expect(server.recipients()).toHaveLength(outcome === 'greylisted' ? 2 : 1)
  })

  test('a quoted local part keeps its quotes', async () => {
    const { ask, server } = await scene({ recipient: only('"ann b"') })
    expect(await ask('"ann b"')).toMatchObject({ outcome: 'accepted' })
    expect(server.recipients()[0]).toBe('"ann b"@example.com')
  })

  test('a local part that would break the command is a bug, and nothing is sent', async () => {
    const { ask, server } = await scene()
    for (const localPart of ['a\r\nDATA', 'a> SIZE=1', 'a b', '"a\nb"', '', 'a\u0085b', 'x'.repeat(600)])
      await expect(ask(localPart)).rejects.toThrow()
    expect(server.conversations).toHaveLength(0)
  })
})

describe('catch-all', () => {
  test('a domain that accepts a random recipient is a catch-all; it is asked once a day', async () => {
    let now = 1_000_000
    const { ask, server } = await scene({}, {}, { now: () => now })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: true })
    expect(await ask('bob')).toMatchObject({ outcome: 'accepted', catchAll: true })
    expect(server.recipients()).toHaveLength(3)
    now += 86_400_001
    expect(await ask('bob')).toMatchObject({ catchAll: true })
    expect(server.recipients()).toHaveLength(5)
  })

  test('the random recipient has a transaction of its own', async () => {
    const { ask } = await scene({
      recipient: (mailbox, { recipients }) => {
        if (recipients > 1) return '452 4.5.3 too many recipients'
        return mailbox.startsWith('ann@') ? '250 2.1.5 ok' : '550 5.1.1 no such user'
      },
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
  })

  test('a server that disconnects at the random recipient does not change the result', async () => {
    const { ask } = await scene({
      reply: (line, { cut }) => {
        if (!line.startsWith('RCPT') || line.includes('<ann@')) return undefined
        cut()
        return null
      },
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: null })
  })

  test('a domain known to refuse unknown recipients gets no random one', async () => {
    const { probe, server } = await scene()
    expect(await probe.probe(addressOf('ann', 'gmail.com'), loopback)).toMatchObject({
      outcome: 'accepted',
      catchAll: false,
    })
    expect(server.recipients()).toEqual(['ann@gmail.com'])
  })

  test('many concurrent checks of one domain share one random recipient', async () => {
    const { ask, server } = await scene({ thinkMs: 5 })
    const found = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map((name) => ask(name)))
    expect(found.map(({ catchAll }) => catchAll)).toEqual([true, true, true, true, true, true])
    expect(server.recipients()).toHaveLength(7)
  })
})

describe('a server that refuses us before RCPT', () => {
  test.each<[string, SmtpScript, string, number | null]>([
    ['at the greeting', { greeting: '554 5.7.1 go away\r\n' }, 'blocked', 554],
    [
      'at EHLO and HELO',
      { reply: (line) => (/^(EHLO|HELO)/.test(line) ? '550 5.7.1 no\r\n' : undefined) },
      'blocked',
      550,
    ],
    [
      'at MAIL',
      { reply: (line) => (line.startsWith('MAIL') ? '550 5.1.8 bad sender\r\n' : undefined) },
      'blocked',
      550,
    ],
    [
      'at MAIL, temporarily',
      { reply: (line) => (line.startsWith('MAIL') ? '451 4.3.0 later\r\n' : undefined) },
      'temporary_failure',
      451,
    ],
    ['for now', { greeting: '421 4.3.2 too many connections\r\n' }, 'temporary_failure', 421],
    ['for now, otherwise', { greeting: '450 4.3.2 not now\r\n' }, 'temporary_failure', 450],
    [
      'because it requires TLS but does not offer it',
      { reply: (line) => (line.startsWith('MAIL') ? '530 5.7.0 Must issue a STARTTLS\r\n' : undefined) },
      'blocked',
      530,
    ],
  ])('%s', async (_, script, outcome, code) => {
    const { ask } = await scene(script)
    expect(await ask('ann')).toMatchObject({ outcome, code, connected: true, catchAll: null })
  })

  test('a server without EHLO is greeted with HELO and gets one command at a time', async () => {
    const { ask, server } = await scene({
      reply: (line) => (line.startsWith('EHLO') ? '502 5.5.1 unknown\r\n' : undefined),
      recipient: only('ann'),
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
    expect(server.conversations[0]?.said).toContain('HELO probe.example.net')
  })
})

describe('a server that does not answer', () => {
  const slow = { replyTimeoutMs: 400, greetingTimeoutMs: 400, totalTimeoutMs: 2_000 }

  test('nothing listens: no connection', async () => {
    const { probe } = probeAt(await closedPort())
    expect(await probe.probe(addressOf('ann'), loopback)).toEqual({
      ...nothing,
      outcome: 'no_connect',
      connected: false,
    })
  })

  test('no target: no connection', async () => {
    const { probe } = probeAt(1)
    expect(await probe.probe(addressOf('ann'), { targets: [] })).toMatchObject({
      outcome: 'no_connect',
      connected: null,
    })
  })

  test('a name instead of an address is never dialled', async () => {
    const { server, probe } = await scene()
    const named = { targets: [{ exchange: 'localhost', addresses: ['localhost'] }] }
    expect(await probe.probe(addressOf('ann'), named)).toMatchObject({ outcome: 'no_connect' })
    expect(server.conversations).toHaveLength(0)
  })

  test('a silent server times out', async () => {
    const { ask } = await scene({ greeting: null }, slow)
    expect(await ask('ann')).toEqual({ ...nothing, outcome: 'timeout', connected: true })
  })

  test('a server that sends an endless reply times out, however slowly it sends', async () => {
    const { ask } = await scene(
      {
        write: (socket, text) => {
          if (!text.includes('sender ok')) {
            socket.write(text)
            return
          }
          const timer = setInterval(() => socket.write('2'.slice(0, 1)), 50)
          socket.on('close', () => clearInterval(timer))
        },
      },
      slow,
    )
    expect(await takesAtMost(1_900, ask('ann'))).toMatchObject({ outcome: 'timeout', connected: true })
  })

  test('the whole check has a deadline', async () => {
    const { ask } = await scene({ thinkMs: 300 }, { replyTimeoutMs: 5_000, totalTimeoutMs: 500 })
    expect(await takesAtMost(1_500, ask('ann'))).toMatchObject({
      outcome: 'timeout',
      catchAll: null,
      code: null,
    })
  })

  test('if a reused session broke and time runs out before a new one, the result reports a connection', async () => {
    const { ask } = await scene(
      {
        greeting: ({ number }) => (number === 1 ? '220 mx.test\r\n' : null),
        recipient: (mailbox, { cut }) => {
          if (mailbox.startsWith('bob@')) cut()
          return '550 5.1.1 no such user'
        },
      },
      { totalTimeoutMs: 400 },
    )
    await ask('ann')
    expect(await ask('bob')).toEqual({ ...nothing, outcome: 'timeout', connected: true })
  })

  test.each(['EHLO', 'MAIL', 'RCPT'])(
    'a server that disconnects at %s is a temporary failure',
    async (verb) => {
      const { ask } = await scene({
        reply: (line, { cut }) => {
          if (!line.startsWith(verb)) return undefined
          cut()
          return null
        },
      })
      expect(await ask('ann')).toMatchObject({ outcome: 'temporary_failure', connected: true, code: null })
    },
  )
})

describe('a server with another protocol', () => {
  const odd: [string, string][] = [
    ['octets that are not a reply', '\u0000\u00ff\u0001 hello\r\n'],
    ['an endless line', `220 ${'x'.repeat(100_000)}`],
    ['an unexpected extra reply', '220 hello\r\n250 ok\r\n250 ok\r\n'],
  ]
  test.each(odd)('%s: it cannot be verified', async (_, greeting) => {
    const { ask } = await scene({ greeting })
    expect(await ask('ann')).toEqual({ ...nothing, outcome: 'cannot_verify', connected: true })
  })

  test('replies split into single octets are understood', async () => {
    const { ask } = await scene({
      recipient: only('ann'),
      write: (socket, text) => {
        socket.cork()
        for (const octet of Buffer.from(text)) {
          socket.write(Buffer.from([octet]))
          socket.uncork()
          socket.cork()
        }
        socket.uncork()
      },
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
  })
})

describe('TLS', () => {
  test('it is used if offered, and the earlier EHLO reply is discarded', async () => {
    const { ask, server } = await scene({
      tls: 'works',
      offers: ['SMTPUTF8', 'PIPELINING'],
      offersWhenSecure: ['PIPELINING'],
      recipient: only('ann'),
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
    expect(server.conversations[0]?.secure).toBe(true)
    expect(server.conversations[0]?.said.slice(0, 3)).toEqual([
      'EHLO probe.example.net',
      'STARTTLS',
      'EHLO probe.example.net',
    ])
    expect(await ask('änn')).toMatchObject({ outcome: 'smtputf8_unsupported', connected: true })
    expect(server.conversations).toHaveLength(1)
  })

  test('a server that requires it is asked', async () => {
    const { ask } = await scene({
      tls: 'works',
      recipient: only('ann'),
      reply: (line, { secure }) =>
        line.startsWith('MAIL') && !secure ? '530 5.7.0 Must issue a STARTTLS command first\r\n' : undefined,
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted' })
  })

  test('if the handshake fails, the server is asked without TLS', async () => {
    const { ask, server } = await scene({ tls: 'broken', recipient: only('ann') })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
    expect(server.conversations).toHaveLength(2)
    expect(server.conversations[1]?.said).not.toContain('STARTTLS')
  })

  test('a refused STARTTLS leaves the session usable', async () => {
    const { ask, server } = await scene({
      tls: 'works',
      recipient: only('ann'),
      reply: (line) => (line === 'STARTTLS' ? '454 4.7.0 not available\r\n' : undefined),
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
    expect(server.conversations).toHaveLength(1)
  })

  test('plain text after the reply to STARTTLS ends the session', async () => {
    const { ask, server } = await scene({ tls: 'injected' })
    expect(await ask('ann')).toMatchObject({ outcome: 'cannot_verify', connected: true })
    expect(server.recipients()).toEqual([])
  })

  test('a server that disconnects after the handshake is asked without TLS', async () => {
    const { ask } = await scene({
      tls: 'works',
      recipient: only('ann'),
      reply: (line, { secure, cut }) => {
        if (!secure || !line.startsWith('EHLO')) return undefined
        cut()
        return null
      },
    })
    expect(await ask('ann')).toMatchObject({ outcome: 'accepted', catchAll: false })
  })
})

describe('SMTPUTF8', () => {
  test('it is used for an address that needs it', async () => {
    const { ask, server } = await scene({ recipient: only('jürgen') })
    expect(await ask('jürgen')).toMatchObject({ outcome: 'accepted', catchAll: false })
    const said = server.conversations[0]?.said ?? []
    expect(said.slice(1, 3)).toEqual(['MAIL FROM:<> SMTPUTF8', 'RCPT TO:<jürgen@example.com>'])
    expect(said).toContain('MAIL FROM:<>')
  })

  test('without it, such an address is never sent', async () => {
    const { ask, server } = await scene({ offers: ['PIPELINING'] })
    expect(await ask('jürgen')).toEqual({ ...nothing, outcome: 'smtputf8_unsupported', connected: true })
    expect(server.recipients()).toEqual([])
  })
})

describe('several exchangers', () => {
  test('if the first is dead, the check contacts the next', async () => {
    const { server, probe } = await scene({ recipient: only('ann') }, { connectTimeoutMs: 500 })
    const targets = [
      { exchange: 'mx1.example.com', addresses: ['127.0.0.2'] },
      { exchange: 'mx2.example.com', addresses: ['127.0.0.1'] },
    ]
    expect(await probe.probe(addressOf('ann'), { targets })).toMatchObject({ outcome: 'accepted' })
    expect(server.conversations).toHaveLength(1)
  })

  test('if the first address is dead, the next one of the same exchanger is dialled', async () => {
    const { probe } = await scene({ recipient: only('ann') }, { connectTimeoutMs: 500 })
    const targets = [{ exchange: 'mx1.example.com', addresses: ['127.0.0.2', '127.0.0.1'] }]
    expect(await probe.probe(addressOf('ann'), { targets })).toMatchObject({ outcome: 'accepted' })
  })

  test.each<[string, SmtpScript]>([
    [
      'a 421 greeting',
      {
        greeting: ({ number }) => (number === 1 ? '421 4.3.2 busy\r\n' : '220 mx.test\r\n'),
      },
    ],
    [
      'a 421 in the middle',
      {
        reply: (line, { number }) =>
          number === 1 && line.startsWith('RCPT') ? '421 4.3.2 going down\r\n' : undefined,
      },
    ],
    [
      'a closed connection',
      {
        reply: (line, { number, cut }) => {
          if (number !== 1 || !line.startsWith('EHLO')) return undefined
          cut()
          return null
        },
      },
    ],
  ])('%s leads to the next one', async (_, script) => {
    const { probe, server } = await scene({ ...script, recipient: only('ann') })
    expect(await probe.probe(addressOf('ann'), twoExchanges)).toMatchObject({ outcome: 'accepted' })
    expect(server.conversations).toHaveLength(2)
  })

  test.each(['550 5.1.1 no such user', '450 4.2.0 greylisted', '550 5.7.1 blocked'])(
    'a reply about the mailbox is final: %s',
    async (reply) => {
      const { probe, server } = await scene({ recipient: () => reply })
      await probe.probe(addressOf('ann'), twoExchanges)
      expect(server.recipients().filter((mailbox) => mailbox === 'ann@example.com')).toHaveLength(1)
    },
  )

  test('if none answers, the most informative failure is reported', async () => {
    const { probe } = await scene({ greeting: '421 4.3.2 busy\r\n' }, { connectTimeoutMs: 500 })
    const targets = [
      { exchange: 'mx1.example.com', addresses: ['127.0.0.1'] },
      { exchange: 'mx2.example.com', addresses: ['127.0.0.2'] },
    ]
    expect(await probe.probe(addressOf('ann'), { targets })).toMatchObject({
      outcome: 'temporary_failure',
      code: 421,
      connected: true,
    })
  })

  test('at most three are tried', async () => {
    const { probe, server } = await scene({ greeting: '421 4.3.2 busy\r\n' }, { breakerStrikes: 100 })
    const targets = Array.from({ length: 9 }, () => ({ exchange: 'mx', addresses: ['127.0.0.1'] }))
    await probe.probe(addressOf('ann'), { targets })
    expect(server.conversations).toHaveLength(3)
  })
})

test('nothing in the log contains an address or a reply', async () => {
  const server = await startSmtpServer({ recipient: (mailbox) => `550 5.1.1 <${mailbox}> secret text` })
  ends.push(() => server.close())
  const { probe, logger } = probeAt(server.port)
  await probe.probe(addressOf('ann'), loopback)
  expect(logger.debug).toHaveBeenCalled()
  expect(JSON.stringify(logger.debug.mock.calls)).not.toMatch(/ann|example|secret/)
})
