import type { Dns } from './dns.ts'
import type { EgressGuard } from './guard.ts'
import { hostsOf } from './hosts.ts'
import { fetchBounded, type PageAnswer, type PageRequest } from './page.ts'
import { type PostAnswer, type PostRequest, postBounded } from './post.ts'

/** All outgoing HTTP requests and the guards that judge their addresses. Only addresses that the operator chose can be exempt from the guard. */
export type Outside = {
  /** Judges addresses from partners and strangers, and exempts none. */
  readonly guard: EgressGuard
  /** Decides whether addresses in the operator's configuration are allowed. `EGRESS_ALLOW` exempts some. */
  readonly operatorGuard: EgressGuard
  /** Judges mail servers, which depend on the domain of an e-mail address. `SMTP_ALLOW` exempts some. */
  readonly mailGuard: EgressGuard
  readonly dns: Dns
  /** Fetches strangers' pages, at most `pagesMax` at a time; other requests wait. */
  readonly fetchPage: (request: PageRequest) => Promise<PageAnswer>
  /** Fetches from a source that the operator chose, with any number of requests at a time. */
  readonly fetchUpstream: (request: PageRequest) => Promise<PageAnswer>
  /** Sends messages to partners, any number at a time. */
  readonly post: (request: PostRequest) => Promise<PostAnswer>
  /** Sends messages to the operator's own webhooks. */
  readonly postOwn: (request: PostRequest) => Promise<PostAnswer>
}

/** The maximum number of pages at a time, because a hostile page may use its maximum decoded size in memory. */
const pagesMax = 16
const pagesWaitingMax = 256

export const createOutside = ({
  guard,
  operatorGuard,
  mailGuard,
  dns,
}: Pick<Outside, 'guard' | 'operatorGuard' | 'mailGuard' | 'dns'>): Outside => {
  const resolveHost = hostsOf(dns)
  const dialling = { guard, resolveHost }
  const asOperator = { guard: operatorGuard, resolveHost }
  const waiting = new Set<() => void>()
  let fetching = 0
  return {
    guard,
    operatorGuard,
    mailGuard,
    dns,
    fetchUpstream: (request) => fetchBounded(request, asOperator),
    post: (request) => postBounded(request, dialling),
    postOwn: (request) => postBounded(request, asOperator),
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
        // Passes the place directly to the next request, so that no later request takes it first.
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

/** True when the request gets a place; false if its time is up first. */
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
