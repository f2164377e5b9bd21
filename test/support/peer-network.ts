/** Links and listeners as `link.ts` and `listener.ts` make them, without sockets: what connects, and when, is said by the test. */
import type { Link } from '../../src/peers/link.ts'
import type { Transport } from '../../src/peers/members.ts'
import type { AnswerPeer, ProcessId } from '../../src/peers/peer.ts'

type FakeListener = {
  readonly id: ProcessId
  leaving: boolean
  readonly answer: AnswerPeer
  readonly connected: (asker: ProcessId) => void
}
type FakeLink = {
  readonly self: ProcessId
  readonly peer: ProcessId
  readonly at: string
  readonly look: () => void
  readonly link: Link
}

export type PeerNetwork = {
  readonly transport: Transport
  /** Addresses that were ever dialled, once for each attempt. */
  readonly dialled: string[]
  /** Who listens now. */
  listening(): ProcessId[]
  links(): number
  /** As if it was killed: nothing of it answers or asks any more. */
  kill(id: ProcessId): void
  /** Nothing reaches it, and it reaches others. */
  shutOff(id: ProcessId): void
}

export const createPeerNetwork = (): PeerNetwork => {
  const listeners = new Map<string, FakeListener>()
  const links = new Set<FakeLink>()
  const dead = new Set<ProcessId>()
  const shut = new Set<ProcessId>()
  const dialled: string[] = []
  let ports = 20_000
  const lookAll = (): void => {
    for (const { look } of [...links]) look()
  }
  const openLink: Transport['openLink'] = ({ self, peer, address }) => {
    const at = `${address.host}:${address.port}`
    dialled.push(at)
    const runs: (() => void)[] = []
    let was = false
    let closed = false
    let tried = false
    const there = (): FakeListener | undefined => {
      const listener = listeners.get(at)
      return closed || dead.has(self) || dead.has(peer) || shut.has(peer) || listener?.id !== peer
        ? undefined
        : listener
    }
    const ready = (): boolean => there()?.leaving === false
    const look = (): void => {
      const now = ready()
      if (now === was && tried) return
      was = now
      tried = true
      for (const run of runs) run()
      if (now) listeners.get(at)?.connected(self)
    }
    const link: Link = {
      id: peer,
      ready: () => was,
      tried: () => tried,
      ask: (question, heard) => {
        const listener = there()
        if (listener === undefined || listener.leaving) return false
        listener.answer(question, { id: self, onGone: () => undefined }, heard)
        return true
      },
      onChange: (run) => void runs.push(run),
      close: async () => {
        closed = true
        look()
        links.delete(entry)
      },
    }
    const entry: FakeLink = { self, peer, at, look, link }
    links.add(entry)
    setTimeout(look, 1)
    return link
  }
  const openPeerListener: Transport['openPeerListener'] = async ({
    host,
    port,
    self,
    answer,
    connected = () => undefined,
  }) => {
    const bound = port === 0 ? ports++ : port
    const at = `${host}:${bound}`
    if (listeners.has(at)) throw Object.assign(new Error('taken'), { code: 'EADDRINUSE' })
    const listener: FakeListener = { id: self, leaving: false, answer, connected }
    listeners.set(at, listener)
    setTimeout(lookAll, 1)
    return {
      address: { host, port: bound },
      tellLeaving: () => {
        listener.leaving = true
        lookAll()
      },
      connections: () => [...links].filter(({ peer, link }) => peer === self && link.ready()).length,
      close: async () => {
        listeners.delete(at)
        lookAll()
      },
    }
  }
  return {
    transport: { openLink, openPeerListener },
    dialled,
    listening: () => [...listeners.values()].map(({ id }) => id).sort(),
    links: () => links.size,
    kill: (id) => {
      dead.add(id)
      lookAll()
    },
    shutOff: (id) => {
      shut.add(id)
      lookAll()
    },
  }
}
