import { Server as NetServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Host } from '../call/route.ts'
import type { Unready } from '../metrics/routes.ts'

/**
 * How hosts stop accepting requests without interrupting one. A client that keeps its connection may send a request at the very
 * moment in which the connection is closed, and would not know whether it arrived. So the hosts first report that they are not
 * ready, and that each answer is the last of its connection. They close connections when those have been quiet for a moment.
 */

/** A load balancer that asks every two seconds and gives up after three answers has sent its requests elsewhere by then. */
const pauseMs = 6_000
/** Applies only if readiness was requested within this time. */
const askedMaxMs = 60_000
/** A client that sends requests one after the other pauses for much less than this. */
const quietMs = 1_000
/** How long finished answers may still be sent before connections are closed. */
const unsentMaxMs = 5_000
const lookMs = 20

export type Leaving = {
  readonly unready: Unready
  add(host: Host): void
  /** Resolves when the hosts can be closed. `pause`: load balancers are given time to notice. */
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
      // Closing the HTTP server itself would close its connections too.
      for (const { server } of hosts) NetServer.prototype.close.call(server)
      await until(() => hosts.every(({ open }) => performance.now() - open.keptAtMs >= quietMs), quietMs)
      await until(() => hosts.every(({ open }) => !open.hasUnsent()), unsentMaxMs)
    },
  }
}
