import { Server as NetServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Host } from '../call/route.ts'
import type { Unready } from '../metrics/routes.ts'

/**
 * How hosts stop accepting requests without interrupting any. A client may send a request at the moment when its connection is closed, and
 * would not know whether the request arrived. So the hosts first report that they are not ready, and end each connection with its next
 * answer. They close the remaining connections once these have been quiet for `quietMs`.
 */

/** After this time, a load balancer has stopped sending requests if it checks every two seconds and gives up after three failures. */
const pauseMs = 6_000
/** The process pauses only if readiness was checked within this time. */
const askedMaxMs = 60_000
/** A client that sends one request after another pauses for a much shorter time. */
const quietMs = 1_000
/** How long finished answers can still be sent before connections are closed. */
const unsentMaxMs = 5_000
const lookMs = 20

export type Leaving = {
  readonly unready: Unready
  add(host: Host): void
  /** Resolves when the hosts can be closed. `pause`: waits first, so that load balancers notice. */
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
      // Closing the HTTP server itself would also close its connections.
      for (const { server } of hosts) NetServer.prototype.close.call(server)
      await until(() => hosts.every(({ open }) => performance.now() - open.keptAtMs >= quietMs), quietMs)
      await until(() => hosts.every(({ open }) => !open.hasUnsent()), unsentMaxMs)
    },
  }
}
