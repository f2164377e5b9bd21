/** The dialogue also works with a third-party mail server. */
import { once } from 'node:events'
import { SMTPServer, type SMTPServerOptions } from 'smtp-server'
import { expect, test } from 'vitest'
import { addressOf, ends, loopback, probeAt } from './mailbox-scene.ts'

const refusal = (responseCode: number, message: string): Error =>
  Object.assign(new Error(message), { responseCode })

const start = async (options: SMTPServerOptions): Promise<number> => {
  const server = new SMTPServer({ authOptional: true, disableReverseLookup: true, ...options })
  server.on('error', () => undefined)
  const listener = server.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  ends.push(() => new Promise((resolve) => server.close(() => resolve())))
  const address = listener.address()
  if (address === null || typeof address === 'string') throw new Error('the server has no port')
  return address.port
}

const recipients: NonNullable<SMTPServerOptions['onRcptTo']> = ({ address }, _session, answer) => {
  const replies: Record<string, Error | null> = {
    'ann@example.com': null,
    'jürgen@example.com': null,
    'full@example.com': refusal(452, 'mailbox full'),
    'grey@example.com': refusal(450, 'greylisted, try again in 5 minutes'),
    'policy@example.com': refusal(550, 'rejected by policy'),
  }
  answer(replies[address] === undefined ? refusal(550, 'no such user') : replies[address])
}

test('the dialogue works over TLS, in one session', async () => {
  const secure: boolean[] = []
  let connections = 0
  const port = await start({
    onConnect: (_session, answer) => {
      connections++
      answer()
    },
    onMailFrom: (_address, session, answer) => {
      secure.push(session.secure)
      answer()
    },
    onRcptTo: recipients,
  })
  const { probe } = probeAt(port)
  const outcomes: Record<string, string> = {}
  for (const name of ['ann', 'bob', 'full', 'grey', 'policy', 'jürgen'])
    outcomes[name] = (await probe.probe(addressOf(name), loopback)).outcome
  expect(outcomes).toEqual({
    ann: 'accepted',
    bob: 'mailbox_not_found',
    full: 'mailbox_full',
    grey: 'greylisted',
    policy: 'blocked',
    jürgen: 'accepted',
  })
  expect(connections).toBe(1)
  expect(new Set(secure)).toEqual(new Set([true]))
})

test('a domain that refuses unknown recipients is not a catch-all, one that accepts all is', async () => {
  const strict = probeAt(await start({ onRcptTo: recipients })).probe
  expect(await strict.probe(addressOf('ann'), loopback)).toMatchObject({
    outcome: 'accepted',
    catchAll: false,
  })
  const open = probeAt(await start({ onRcptTo: (_address, _session, answer) => answer() })).probe
  expect(await open.probe(addressOf('ann'), loopback)).toMatchObject({ outcome: 'accepted', catchAll: true })
})

test('the dialogue works without TLS and without pipelining', async () => {
  const port = await start({ hideSTARTTLS: true, hidePIPELINING: true, onRcptTo: recipients })
  const { probe } = probeAt(port)
  expect(await probe.probe(addressOf('ann'), loopback)).toMatchObject({
    outcome: 'accepted',
    catchAll: false,
  })
  expect(await probe.probe(addressOf('bob'), loopback)).toMatchObject({ outcome: 'mailbox_not_found' })
})

test('refusing the client is not refusing the mailbox', async () => {
  const port = await start({ onConnect: (_session, answer) => answer(refusal(554, 'no service for you')) })
  const { probe } = probeAt(port)
  expect(await probe.probe(addressOf('ann'), loopback)).toMatchObject({ outcome: 'blocked', code: 554 })
})

test('a server that requires a login refuses us', async () => {
  const port = await start({ authOptional: false, onRcptTo: recipients })
  const { probe } = probeAt(port)
  expect(await probe.probe(addressOf('ann'), loopback)).toMatchObject({ outcome: 'blocked', code: 530 })
})
