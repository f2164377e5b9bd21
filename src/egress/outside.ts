import type { Dns } from './dns.ts'
import type { EgressGuard } from './guard.ts'
import { hostsOf } from './hosts.ts'
import { fetchBounded, type PageAnswer, type PageRequest } from './page.ts'
import { type PostAnswer, type PostRequest, postBounded } from './post.ts'

/** The ways out of this process, shared by all that use them: one guard, one resolver with one cache. */
export type Outside = {
  readonly guard: EgressGuard
  readonly dns: Dns
  /** For pages of strangers: at most `pagesMax` at a time, the others wait. */
  readonly fetchPage: (request: PageRequest) => Promise<PageAnswer>
  /** For a source the operator chose: as many at a time as the caller asks for. */
  readonly fetchUpstream: (request: PageRequest) => Promise<PageAnswer>
  /** For messages to strangers: as many at a time as the caller sends. */
  readonly post: (request: PostRequest) => Promise<PostAnswer>
}

/** A hostile page may take this many times its decoded maximum before it is let go. */
const pagesMax = 16
const pagesWaitingMax = 256

export const createOutside = ({ guard, dns }: Pick<Outside, 'guard' | 'dns'>): Outside => {
  const dialling = { guard, resolveHost: hostsOf(dns) }
  const waiting = new Set<() => void>()
  let fetching = 0
  return {
    guard,
    dns,
    fetchUpstream: (request) => fetchBounded(request, dialling),
    post: (request) => postBounded(request, dialling),
    fetchPage: async (request) => {
      const startedMs = performance.now()
      if (fetching < pagesMax) fetching += 1
      else {
        if (waiting.size >= pagesWaitingMax) return { kind: 'unreachable', detail: 'busy' }
        if (!(await placeWithin(waiting, request))) return { kind: 'timeout', detail: 'deadline' }
      }
      try {
        const waitedMs = performance.now() - startedMs
        const deadlineMs = Math.max(1, Math.ceil(request.deadlineMs - waitedMs))
        return await fetchBounded({ ...request, deadlineMs }, dialling)
      } finally {
        // The place is handed on, so that no other request takes it in between.
        const [first] = waiting
        if (first === undefined) fetching -= 1
        else {
          waiting.delete(first)
          first()
        }
      }
    },
  }
}

/** True once a place was handed over; false when the request's time was up before. */
const placeWithin = (waiting: Set<() => void>, { deadlineMs, signal }: PageRequest): Promise<boolean> =>
  new Promise((resolve) => {
    const done = (placed: boolean): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', giveUp)
      resolve(placed)
    }
    const take = (): void => done(true)
    const giveUp = (): void => {
      waiting.delete(take)
      done(false)
    }
    const timer = setTimeout(giveUp, deadlineMs)
    if (signal?.aborted === true) return giveUp()
    signal?.addEventListener('abort', giveUp, { once: true })
    waiting.add(take)
  })
