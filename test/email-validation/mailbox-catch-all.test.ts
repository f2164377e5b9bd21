/** Whether a server accepts mail for any recipient is remembered for each server and domain. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { describe, expect, test } from 'vitest'
import { closedPort } from '../support/smtp-servers.ts'
import { addressOf, ends, probeAt } from './mailbox-scene.ts'

type MailHost = {
  readonly asked: string[]
  close(): Promise<void>
}

/**
 * Starts a mail server. The exchangers of one domain share a port and differ by address. If `knows` is null, the server accepts
 * mail for any recipient.
 */
const mailHost = async (host: string, port: number, knows: string | null): Promise<MailHost> => {
  const asked: string[] = []
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.write('220 mx.test ESMTP\r\n')
    socket.on('data', (bytes) => {
      for (const line of bytes.toString().split('\r\n').filter(Boolean)) {
        const recipient = /^RCPT TO:<([^>]*)>/.exec(line)?.[1]
        if (recipient !== undefined) asked.push(recipient)
        const unknown = recipient !== undefined && knows !== null && recipient !== knows
        const reply = unknown ? '550 5.1.1 no such user' : '250 2.1.5 ok'
        socket.write(`${line.startsWith('QUIT') ? '221 2.0.0 bye' : reply}\r\n`)
      }
    })
    sockets.add(socket)
  })
  const sockets = new Set<import('node:net').Socket>()
  server.listen(port, host)
  await once(server, 'listening')
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  }
  ends.push(close)
  return { asked, close }
}

const exchanges = (...names: readonly [exchange: string, address: string][]) => ({
  targets: names.map(([exchange, address]) => ({ exchange, addresses: [address] })),
})
const primary = ['mx1.example.com', '127.0.0.1'] as const
const backup = ['mx2.example.com', '127.0.0.2'] as const

const accepted = { outcome: 'accepted', connected: true }

describe('a domain with a backup that accepts mail for any recipient', () => {
  test('is not reported as refusing unknown recipients while the backup answers', async () => {
    const port = await closedPort()
    const first = await mailHost(primary[1], port, 'ann@example.com')
    const second = await mailHost(backup[1], port, null)
    const { probe } = probeAt(port)
    const mx = exchanges([...primary], [...backup])
    expect(await probe.probe(addressOf('ann'), mx)).toMatchObject({ ...accepted, catchAll: false })
    await first.close()
    expect(await probe.probe(addressOf('nobody'), mx)).toMatchObject({ ...accepted, catchAll: true })
    // The second server was asked about a random recipient, not assumed to behave like the first.
    expect(second.asked).toEqual(['nobody@example.com', expect.stringMatching(/^[a-z2-9]{20}@example\.com$/)])
  })

  test('is not reported as a catch-all once the first server answers again', async () => {
    const port = await closedPort()
    await mailHost(backup[1], port, null)
    const { probe } = probeAt(port, { breakerStrikes: 1_000 })
    const mx = exchanges([...primary], [...backup])
    expect(await probe.probe(addressOf('ann'), mx)).toMatchObject({ ...accepted, catchAll: true })
    await mailHost(primary[1], port, 'ann@example.com')
    expect(await probe.probe(addressOf('ann'), mx)).toMatchObject({ ...accepted, catchAll: false })
  })
})

describe('one server', () => {
  test('is asked about a domain once, in upper or lower case', async () => {
    const port = await closedPort()
    const host = await mailHost(primary[1], port, 'ann@example.com')
    const { probe } = probeAt(port)
    for (const name of ['mx1.example.com', 'MX1.Example.COM'])
      expect(await probe.probe(addressOf('ann'), exchanges([name, primary[1]]))).toMatchObject({
        ...accepted,
        catchAll: false,
      })
    expect(host.asked).toHaveLength(3)
  })

  test('is asked about each domain it serves', async () => {
    const port = await closedPort()
    const host = await mailHost(primary[1], port, null)
    const { probe } = probeAt(port)
    for (const domain of ['example.com', 'example.org'])
      expect(await probe.probe(addressOf('ann', domain), exchanges([...primary]))).toMatchObject({
        ...accepted,
        catchAll: true,
      })
    expect(host.asked).toHaveLength(4)
  })
})
