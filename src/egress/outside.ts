import type { Dns } from './dns.ts'
import type { EgressGuard } from './guard.ts'
import { hostsOf } from './hosts.ts'
import { fetchBounded, type PageAnswer, type PageRequest } from './page.ts'
import { type PostAnswer, type PostRequest, postBounded } from './post.ts'

/** All outgoing HTTP requests, and the guards that check their addresses. Only addresses that the operator has configured can be exempt. */
export type Outside = {
  /** For addresses from partners and strangers. No address is exempt. */
  readonly guard: EgressGuard
  /** For addresses in the operator's configuration. Those in `EGRESS_ALLOW` are exempt. */
  readonly operatorGuard: EgressGuard
  /** For mail servers, which are determined by the domain of an e-mail address. Those in `SMTP_ALLOW` are exempt. */
  readonly mailGuard: EgressGuard
  readonly dns: Dns
  /** Fetches pages of strangers, at most `pagesMax` at a time. Other requests wait. */
  readonly fetchPage: (request: PageRequest) => Promise<PageAnswer>
  /** Fetches from a source that the operator has configured, with any number of requests at a time. */
  readonly fetchUpstream: (request: PageRequest) => Promise<PageAnswer>
  /** Sends messages to partners' webhooks, any number at a time. */
  readonly post: (request: PostRequest) => Promise<PostAnswer>
  /** Sends messages to the operator's own webhooks. */
  readonly postOwn: (request: PostRequest) => Promise<PostAnswer>
}

/** The maximum number of pages at a time, because each hostile page can use the maximum decoded size in memory. */
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
        // The place is passed directly to the next request, so that no later request takes it first.
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

/** Resolves with true when the request gets a place, or with false if its time is up first. */
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
