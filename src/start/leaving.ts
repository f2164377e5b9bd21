import { Server as NetServer } from 'node:net'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import type { Host } from '../call/route.ts'
import type { Unready } from '../metrics/routes.ts'

/**
 * Stops accepting requests without interrupting any. If a client sends a request while its connection is being closed, it cannot know whether
 * the request arrived. The hosts therefore first report that they are not ready, and close each connection after its next answer. The
 * remaining connections are closed when they have been idle for `quietMs`.
 */

/** Long enough for a load balancer that checks every two seconds and stops sending requests after three failures. */
const pauseMs = 6_000
/** If readiness was not checked within this time, there is no load balancer to wait for. */
const askedMaxMs = 60_000
/** Clients that send one request after another pause for much less than this. */
const quietMs = 1_000
/** How long to wait until finished answers have been sent. */
const unsentMaxMs = 5_000
const lookMs = 20

export type Leaving = {
  readonly unready: Unready
  add(host: Host): void
  /** Resolves when the hosts can be closed. `pause`: first gives load balancers time to stop sending requests. */
  leave(options: { readonly pause: boolean }): Promise<void>
}

export const createLeaving = (): Leaving => {
  const hosts: Host[] = []
  let askedAtMs = Number.NEGATIVE_INFINITY
  let ending = false
  const until = async (isOver: () => boolean, maxMs: number): Promise<void> => {
    for (const endMs = performance.now() + maxMs; !isOver() && performance.now() < endMs; )
      await sleep(lookMs)
  }
  return {
    unready: {
      asked: () => {
        askedAtMs = performance.now()
        return ending
      },
    },
    add: (host) => void hosts.push(host),
    leave: async ({ pause }) => {
      ending = true
      for (const { open } of hosts) open.end()
      if (pause && performance.now() - askedAtMs < askedMaxMs) await sleep(pauseMs)
      // The system resets connections that wait to be accepted while their port is closed. After a turn of the event loop, none waits.
      await nextTurn()
      // The HTTP server's own `close` would also close idle connections.
      for (const { server } of hosts) NetServer.prototype.close.call(server)
      await until(() => hosts.every(({ open }) => performance.now() - open.keptAtMs >= quietMs), quietMs)
      await until(() => hosts.every(({ open }) => !open.hasUnsent()), unsentMaxMs)
    },
  }
}
