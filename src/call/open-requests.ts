import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'

/**
 * What a connection still owes when bytes arrive on it that make no sense. Node.js tells of them at once, also while
 * calls that came before on the same connection are being made: those are charged, so their answers leave first.
 */
type OpenRequests = {
  began(request: IncomingMessage): void
  answered(request: IncomingMessage): void
  /** Runs `last` when everything that came in whole is answered. Asked again about the same connection, does nothing. */
  whenAnswered(socket: Socket, last: () => void): void
}

type Owed = { readonly requests: Set<IncomingMessage>; last?: () => void }

export const createOpenRequests = (): OpenRequests => {
  const owedOn = new WeakMap<Socket, Owed>()
  const owed = (socket: Socket): Owed => {
    const known = owedOn.get(socket)
    if (known !== undefined) return known
    const fresh: Owed = { requests: new Set() }
    owedOn.set(socket, fresh)
    return fresh
  }
  return {
    began: (request) => void owed(request.socket).requests.add(request),
    answered: (request) => {
      const { requests, last } = owed(request.socket)
      requests.delete(request)
      if (!waits(requests)) last?.()
    },
    whenAnswered: (socket, last) => {
      const entry = owed(socket)
      if (entry.last !== undefined) return
      entry.last = last
      if (!waits(entry.requests)) last()
    },
  }
}

/** One that is not whole is the one that is broken: it never will be. */
const waits = (requests: ReadonlySet<IncomingMessage>): boolean =>
  [...requests].some(({ complete }) => complete)
