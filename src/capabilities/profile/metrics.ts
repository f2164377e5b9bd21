import type { Meters } from '../../call/capability.ts'
import { profileFacts } from '../../events/profile.ts'
import type { ProfileObserver } from './gather.ts'
import type { ProviderObserver, Providers } from './sources/providers.ts'

/** Up to the eight seconds a source has at most. */
const requestBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

/** `provider` is the name of a kind of source, of which there are three. */
export const observerOf = (meters: Meters): ProfileObserver & ProviderObserver => {
  const asked = meters.histogram({
    name: 'profile_provider_request_duration_seconds',
    help: 'Questions to sources of profiles, from asking to its answer; abandoned: another source was faster',
    labels: ['provider', 'answer'],
    buckets: requestBuckets,
  })
  return {
    retrieved: meters.words(
      {
        name: 'profile_retrievals_total',
        help: 'Profiles asked for, by where the answer came from or why there was none',
      },
      'source',
      [...profileFacts.shape.source.options, 'missing', 'unavailable'],
    ),
    asked: (provider, answer, seconds) => asked(seconds, { provider, answer }),
  }
}

export const meterProviders = (meters: Meters, status: Providers['status']): void =>
  meters.gauge(
    {
      name: 'profile_provider_breaker_open',
      help: '1 while a source is left alone because it failed too often, and until it is seen to answer again',
      labels: ['provider'],
    },
    () =>
      status().map(({ provider, breaker }) => ({
        labels: { provider },
        value: breaker === 'closed' ? 0 : 1,
      })),
  )
