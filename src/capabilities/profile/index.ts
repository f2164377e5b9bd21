import type pg from 'pg'
import type { Capability, CapabilityStorage, InputVerdict, Meters } from '../../call/capability.ts'
import type { DataSource } from '../../call/data-source.ts'
import type { Caller, CapabilityForm, PaidCall, Unaffordable } from '../../call/form.ts'
import { afterMs } from '../../concurrency/deadline.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { CallFacts } from '../../events/calls.ts'
import { type ProfileFacts, profileFacts } from '../../events/profile.ts'
import { profileStream } from '../../events/streams.ts'
import { type ProfileRequest, type ProfileResult, parseProfileRequest } from './contract.ts'
import { seedProfiles } from './dataset/installed.ts'
import { decide, type ProfileFindings } from './decide.ts'
import { document, profileCall } from './document.ts'
import type { Identifiers } from './identifier.ts'
import { createFetchClaims } from './record/claims.ts'
import { dropOldProfiles, eraseAgain, retainedAtOnceMax } from './record/erase.ts'
import { createRetrieval, type Retrieval } from './record/retrieval.ts'
import type { Retrieved } from './record/retrieved.ts'
import { datasetStore, profileKeyStore } from './record/sealed-stores.ts'
import { rehearsal } from './rehearsal.ts'
import { identifiersOf, type ProfileSettings } from './settings.ts'
import { openSource } from './sources/configured.ts'
import type { GuardedSource, SourceObserver } from './sources/guarded-source.ts'
import { datasetSecretsOf, erasureParts, vaultOf } from './storage.ts'

type ProfileParts = {
  readonly identifiers: Identifiers
  readonly retrieval: Pick<Retrieval, 'retrieve'>
  readonly observe: ProfileObserver
}

/** Used by every call, so it must be cheap. */
type ProfileObserver = {
  /** `source` is the source of the data, or the reason why there is no data. */
  readonly retrieved: (source: ProfileFacts['source'] | 'missing' | 'unavailable') => void
}

const gather = async (
  { identifiers, retrieval, observe }: ProfileParts,
  { ref, cached }: ProfileRequest,
  caller: Caller,
): Promise<ProfileFindings | Unaffordable> => {
  // Credits are reserved before the cache is read, because a refusal afterwards would reveal whether the cache contains the person.
  const unaffordable = await caller.reserve(dearest(cached ? 'cached' : 'fresh'))
  if (unaffordable !== null) return unaffordable
  const { repeated } = caller
  const found = await retrieval.retrieve(ref, {
    wants: cached || repeated !== null ? 'cached' : 'fresh',
    organizationId: caller.key.organizationId,
    upstream: repeated === null,
    // A request to the source costs money, so the caller's credits are reserved first.
    beforeUpstream: () => caller.reserve(dearest('fresh')),
  })
  if ('unaffordable' in found) return found
  const retrieved = repeated === null ? found : leftBy(repeated, found, caller.atMs)
  observe.retrieved(retrieved.kind === 'found' ? retrieved.source : retrieved.kind)
  return { retrieved, urlOf: identifiers.urlOf }
}

/**
 * The maximum time by which the data of a repeated call is younger than the charge. It equals the time for which answers of other calls are
 * stored (decision 15).
 */
const repeatMaxMs = 86_400_000
/**
 * One charge must not pay for newer data again and again. A repeated call gets data only about the charged person, because the identifier may
 * have passed to another person, and the data is at most a day younger than the charge.
 */
const leftBy = (paid: PaidCall, found: Retrieved, nowMs: number): Retrieved => {
  if (found.kind !== 'found') return found
  const same = paid.facts.kind === 'profile' && paid.facts.subject_id === found.subjectId
  const inTime = nowMs - found.ageMs <= paid.atMs + repeatMaxMs
  return same && inTime ? found : { kind: 'unavailable', retryAfterSeconds: repeatRetryAfterSeconds }
}
const repeatRetryAfterSeconds = 60

/** The most expensive facts that the call can still establish. */
const dearest = (source: 'cached' | 'fresh'): ProfileFacts => ({
  kind: 'profile',
  source,
  age_seconds: 0,
  subject_id: '',
})

/** The maximum number of events read for one person. Each contains at most a few dozen hashes. */
const eventsMax = 10_000

/**
 * Decides whether a call was about the person with an identifier. The facts of the call contain only our own id of a person, but the person's
 * stream contains the keyed hashes of all their identifiers. Erased people are not compared.
 */
const recognizePerson = (
  storage: CapabilityStorage & { readonly settings: ProfileSettings },
  text: string,
) => {
  const ref = identifiersOf(storage.settings).parse(text)
  const hmac = ref === null ? '' : storage.secrets.identifierHmac(`${ref.kind}:${ref.value}`)
  const verdicts = new Map<string, Promise<InputVerdict>>()
  let erased: Promise<boolean> | undefined
  const verdictOn = async (subjectId: string): Promise<InputVerdict> => {
    erased ??= vaultOf(storage).suppressed([hmac])
    if (await erased) return { verdict: 'cannot_be_told', why: 'the person with this identifier was erased' }
    const events = await readIfAny(storage.eventLog, profileStream(subjectId), { max: eventsMax })
    if (events.length === 0)
      return { verdict: 'cannot_be_told', why: 'no data about this person is recorded' }
    const aliases = events.map(decodeEvent).flatMap((event) => {
      if (event.type === 'ProfileFetched') return [...event.data.aliases, ...event.data.former_aliases]
      return event.type === 'ProfileMissed' ? event.data.aliases : []
    })
    return aliases.some((alias) => alias.kind === ref?.kind && alias.hmac === hmac)
      ? { verdict: 'yes', why: 'it identifies this person; the identifier that was sent is not recorded' }
      : { verdict: 'no' }
  }
  return (facts: CallFacts): InputVerdict | null | Promise<InputVerdict> => {
    if (facts.kind !== 'profile') return null
    if (ref === null) return { verdict: 'no', why: 'it is not a profile id, profile URL or person URN' }
    const { subject_id } = facts
    const verdict = verdicts.get(subject_id) ?? verdictOn(subject_id)
    verdicts.set(subject_id, verdict)
    return verdict
  }
}

/** Upper bounds in seconds. A source can take up to eight seconds. */
const requestBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

/** Counts and times requests to sources. `provider` is the name of a kind of source. */
export const observerOf = (meters: Meters): ProfileObserver & SourceObserver => {
  const asked = meters.histogram({
    name: 'profile_provider_request_duration_seconds',
    help: 'Requests to profile sources, from sending to the answer',
    labels: ['provider', 'answer'],
    buckets: requestBuckets,
  })
  return {
    retrieved: meters.words(
      {
        name: 'profile_retrievals_total',
        help: 'Profiles requested, by the source of the answer or the reason why there was none',
      },
      'source',
      [...profileFacts.shape.source.options, 'missing', 'unavailable'],
    ),
    asked: (provider, answer, seconds) => asked(seconds, { provider, answer }),
  }
}

export const meterSource = (meters: Meters, { name, breaker }: GuardedSource): void =>
  meters.gauge(
    {
      name: 'profile_provider_breaker_open',
      help: '1 while a source is not asked because it failed too often, until it answers again',
      labels: ['provider'],
    },
    () => [{ labels: { provider: name }, value: breaker() === 'closed' ? 0 : 1 }],
  )

/** The maximum number of rows that are counted. More are reported as "more than" this number. */
const countedMax = 100_000

const holds = (n: number, what: string): string =>
  `${n > countedMax ? `more than ${countedMax.toLocaleString('en-US')}` : n.toLocaleString('en-US')} ${what}`

type Counted = { readonly n: number; readonly newest: Date | null }

const counted = async (
  pool: pg.Pool,
  of: 'profile_dataset' | 'profile_cache' | 'profile_suppressions',
  column: 'imported_at' | 'fetched_at' | 'suppressed_at',
): Promise<Counted> => {
  const { rows } = await pool.query<Counted>(
    `select count(*)::int as n, max(${column}) as newest from (select ${column} from ${of} limit $1) t`,
    [countedMax + 1],
  )
  return rows[0] ?? { n: 0, newest: null }
}

/** Names the source by its host, without the path, which can contain a secret. */
const sourceText = ({ PROFILE_PROVIDER, PROFILE_HTTP_URL }: ProfileSettings): string =>
  PROFILE_PROVIDER === 'dataset'
    ? 'the data set'
    : `the source at ${URL.parse(PROFILE_HTTP_URL ?? '')?.host ?? 'no address'}`

const profileData = async ({
  pool,
  settings,
}: {
  readonly pool: pg.Pool
  readonly settings: ProfileSettings
}): Promise<readonly DataSource[]> => {
  const [dataset, cache, suppressions] = await Promise.all([
    counted(pool, 'profile_dataset', 'imported_at'),
    counted(pool, 'profile_cache', 'fetched_at'),
    counted(pool, 'profile_suppressions', 'suppressed_at'),
  ])
  const of = { place: 'installation', version: null, ageDaysMax: null } as const
  const asked = settings.PROFILE_PROVIDER === 'dataset'
  return [
    {
      ...of,
      name: 'Data set of people',
      imported: 'profiles',
      asOf: dataset.newest,
      from: asked ? 'imported files' : 'imported files; not in use, because of PROFILE_PROVIDER',
      holds: holds(dataset.n, 'people'),
      remedy: asked && dataset.n === 0 ? 'Import people with "profiles import".' : null,
    },
    {
      ...of,
      name: 'Profiles kept',
      imported: null,
      asOf: cache.newest,
      remedy: null,
      from: sourceText(settings),
      holds: holds(cache.n, 'profiles'),
    },
    {
      ...of,
      name: 'Suppressed identifiers',
      imported: null,
      asOf: suppressions.newest,
      remedy: null,
      from: '"profiles erase"',
      holds: holds(suppressions.n, 'identifiers'),
    },
  ]
}

/**
 * Profile retrieval (Spec §4.3): one person's data, cached or fresh, by any identifier. Answers contain personal data and are
 * never stored.
 */
export const profile: Capability<ProfileSettings> = {
  hosts: ['api'],
  document,
  open: async (ports) => {
    const { pool, eventLog, secrets, settings, meters, logger } = ports
    const observe = observerOf(meters)
    const identifiers = identifiersOf(settings)
    const erasedAgain = await eraseAgain(erasureParts(ports))
    if (erasedAgain > 0)
      logger.warn(
        { people: erasedAgain },
        'the database was restored from a time before some erasures, so the erased people were erased again',
      )
    const vault = vaultOf(ports)
    const source = await openSource(settings, {
      pool,
      secrets: datasetSecretsOf(ports),
      identifiers,
      fetchPage: ports.outside.fetchUpstream,
      clock: { now: () => performance.now(), after: afterMs },
      epochMs: Date.now,
      logger,
      observe,
    })
    meterSource(meters, source)
    const retrieval = createRetrieval({
      pool,
      eventLog,
      vault,
      claims: createFetchClaims(pool),
      provider: source,
      identifierHmac: secrets.identifierHmac,
      clock: Date,
      logger,
      limits: { fetchesMax: settings.PROFILE_FETCHES_MAX },
    })
    if (ports.embedded && settings.PROFILE_PROVIDER === 'dataset') await seedProfiles(ports, settings)
    return {
      forms: [profileForm({ identifiers, retrieval, observe })],
      jobs: {
        'drop-old-profiles': {
          purpose: 'deletes profiles that are too old',
          cron: '51 * * * *',
          run: () => dropOldProfiles({ eventLog, vault, clock: Date }),
          portionMax: retainedAtOnceMax,
        },
      },
      close: retrieval.close,
    }
  },
  data: profileData,
  recognizes: recognizePerson,
  sealed: ({ pool, epochKeys }) => [
    profileKeyStore({ pool, sealer: epochKeys.sealer('profile-key'), clock: Date }),
    datasetStore({ pool, sealer: epochKeys.sealer('profile-dataset') }),
  ],
}

const profileForm = (
  parts: ProfileParts,
): CapabilityForm<ProfileRequest, ProfileFindings, ProfileResult> => ({
  ...profileCall,
  personal: true,
  parse: (body) => parseProfileRequest(body, parts.identifiers),
  rehearse: rehearsal(parts.identifiers),
  gather: (input, caller) => gather(parts, input, caller),
  decide,
})
