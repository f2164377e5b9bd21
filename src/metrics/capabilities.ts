import { Counter, Gauge, Histogram, type Registry } from '@prometheus-io/client'
import type { EmailStatus } from '../events/email-validation.ts'
import { type ProfileFacts, profileFacts } from '../events/profile.ts'
import { counterOf, countWords, setCount } from './counts.ts'

/**
 * What operations measures of the capabilities that look outside or count, and of DNS. Their rooms are not known here:
 * each declares what it tells, and where both meet, in `start/capabilities.ts`, the compiler sees to it that every word it may say is
 * one of these lists.
 */

const mailboxOutcomes = [
  'accepted',
  'mailbox_not_found',
  'mailbox_disabled',
  'mailbox_full',
  'greylisted',
  'temporary_failure',
  'cannot_verify',
  'blocked',
  'smtputf8_unsupported',
  'no_connect',
  'timeout',
] as const
const retrievals = [...profileFacts.shape.source.options, 'missing', 'unavailable'] as const
const pixelReasons = ['blocked', 'no_rule', 'allowed', 'limit', 'unavailable'] as const

type ProviderAnswerKind =
  | 'found'
  | 'gone'
  | 'not_found'
  | 'inaccessible'
  | 'unsupported'
  | 'rate_limited'
  | 'transient'
  | 'malformed'
  | 'abandoned'

type DnsOutcome = 'records' | 'not_found' | 'no_data' | 'timeout' | 'failed' | 'busy'

/** Up to the eight seconds a source has at most. */
const requestBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export type EmailMetrics = {
  readonly verdict: (row: number, status: EmailStatus) => void
  readonly mailboxChecked: (outcome: (typeof mailboxOutcomes)[number]) => void
}

export type ProfileMetrics = {
  readonly retrieved: (source: ProfileFacts['source'] | 'missing' | 'unavailable') => void
  readonly asked: (provider: string, answer: ProviderAnswerKind, seconds: number) => void
}

export type PixelMetrics = {
  readonly decided: (reason: (typeof pixelReasons)[number]) => void
  readonly countersFailed: () => void
}

/** What is asked of these rooms when somebody reads the metrics. */
export type CapabilitySources = {
  /** Null where EMAIL_PROBE is off. */
  mailboxes(): { readonly sessionsOpened: number; readonly breakersOpen: number } | null
  profileProviders(): readonly {
    readonly provider: string
    readonly breaker: 'closed' | 'open' | 'half_open'
  }[]
  dns(): { readonly queries: Readonly<Record<DnsOutcome, number>>; readonly cacheHits: number }
}

type Sources = () => Partial<CapabilitySources>

/** `row` is one of the decision table's, and always comes with the same status. */
export const emailMetrics = (registers: Registry[], sources: Sources): EmailMetrics => {
  const verdicts = new Map<number, { readonly status: EmailStatus; count: number }>()
  new Counter({
    name: 'enrichment_email_verdicts_total',
    help: 'E-mail validations judged, by the row of the decision table that decided',
    labelNames: ['row', 'status'],
    registers,
    collect() {
      for (const [row, { status, count }] of verdicts) setCount(this, { row: String(row), status }, count)
    },
  })
  const mailboxes = () => sources().mailboxes?.() ?? null
  counterOf(
    {
      name: 'mailbox_sessions_opened_total',
      help: 'Sessions with mail servers that came as far as a first question',
      registers,
    },
    () => mailboxes()?.sessionsOpened ?? null,
  )
  new Gauge({
    name: 'enrichment_mailbox_breakers_open',
    help: 'Addresses of mail servers left alone because they refused us or were not there',
    registers,
    collect() {
      const known = mailboxes()
      if (known === null) this.remove()
      else this.set(known.breakersOpen)
    },
  })
  return {
    verdict: (row, status) => {
      const known = verdicts.get(row)
      if (known === undefined) verdicts.set(row, { status, count: 1 })
      else known.count++
    },
    mailboxChecked: countWords(
      { name: 'mailbox_checks_total', help: 'Mailboxes asked about, by what came of it', registers },
      'outcome',
      mailboxOutcomes,
    ),
  }
}

/** `provider` is the name of a kind of source, of which there are three. */
export const profileMetrics = (registers: Registry[], sources: Sources): ProfileMetrics => {
  const requests = new Histogram({
    name: 'enrichment_profile_provider_request_duration_seconds',
    help: 'Questions to sources of profiles, from asking to its answer; abandoned: another source was faster',
    labelNames: ['provider', 'answer'],
    buckets: requestBuckets,
    registers,
  })
  new Gauge({
    name: 'enrichment_profile_provider_breaker_open',
    help: '1 while a source is left alone because it failed too often, and until it is seen to answer again',
    labelNames: ['provider'],
    registers,
    collect() {
      this.reset()
      for (const { provider, breaker } of sources().profileProviders?.() ?? [])
        this.set({ provider }, breaker === 'closed' ? 0 : 1)
    },
  })
  return {
    retrieved: countWords(
      {
        name: 'profile_retrievals_total',
        help: 'Profiles asked for, by where the answer came from or why there was none',
        registers,
      },
      'source',
      retrievals,
    ),
    asked: (provider, answer, seconds) => requests.observe({ provider, answer }, seconds),
  }
}

export const pixelMetrics = (registers: Registry[]): PixelMetrics => {
  const failures = new Counter({
    name: 'enrichment_pixel_counting_failures_total',
    help: 'Hits that did not fire, and limits told without what is used, because counters or rules did not answer',
    registers,
  })
  return {
    decided: countWords(
      { name: 'pixel_decisions_total', help: 'Hits decided, by why they fire or do not', registers },
      'reason',
      pixelReasons,
    ),
    countersFailed: () => failures.inc(),
  }
}

/** DNS counts for itself, so that a question answered from memory costs an addition. */
export const dnsMetrics = (registers: Registry[], sources: Sources): void => {
  new Counter({
    name: 'enrichment_dns_queries_total',
    help: 'Questions to DNS servers, by what came of them; busy: not asked, because too many were under way',
    labelNames: ['outcome'],
    registers,
    collect() {
      for (const [outcome, count] of Object.entries(sources().dns?.().queries ?? {}))
        setCount(this, { outcome }, count)
    },
  })
  counterOf(
    { name: 'dns_cache_hits_total', help: 'Questions answered from what DNS servers had said', registers },
    () => sources().dns?.().cacheHits ?? null,
  )
}
