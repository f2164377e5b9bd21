/** Retrieval over a real database, a real event log and a running projector, shared by several processes. Only the sources are scripted. */
import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import { afterAll, beforeAll, beforeEach } from 'vitest'
import { projections } from '../../projections/index.ts'
import { profileDataOf } from '../../src/capabilities/profile/mapping/mapping.ts'
import { createFetchClaims } from '../../src/capabilities/profile/record/claims.ts'
import { type Erasure, eraseProfile } from '../../src/capabilities/profile/record/erase.ts'
import { createRetrieval, type Retrieval } from '../../src/capabilities/profile/record/retrieval.ts'
import type { Retrieved } from '../../src/capabilities/profile/record/retrieved.ts'
import { createVault, type Vault } from '../../src/capabilities/profile/record/vault.ts'
import type {
  ProfileData,
  ProfileProvider,
  ProfileRef,
  ProviderAnswer,
} from '../../src/capabilities/profile/sources/provider.ts'
import { parseConfig } from '../../src/config.ts'
import { logStart } from '../../src/event-log/port.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { createProjector } from '../../src/projector/run.ts'
import { foldedBy } from '../support/house.ts'
import { logger } from '../support/logger.ts'
import { testDatabase } from '../support/postgres.ts'

export const hourMs = 3_600_000
export const dayMs = 24 * hourMs

type Script = (ref: ProfileRef) => ProviderAnswer | Promise<ProviderAnswer>
export type Source = ProfileProvider & {
  readonly asked: ProfileRef[]
  script: Script
}

export type RetrievalScene = {
  readonly now: () => number
  move(ms: number): void
  readonly foundation: () => Foundation
  readonly vault: () => Vault
  foundAs(
    lid: string,
    urn: string | null,
    more?: Partial<ProfileData> & { redirected?: boolean; observedAtMs?: number },
  ): ProviderAnswer
  source(script: Script, options?: { name?: string; kinds?: readonly ProfileRef['kind'][] }): Source
  /** A process that fetches from this source. */
  processOver(
    source: Source,
    options?: {
      vault?: Vault
      answerMaxMs?: number
      fetchesMax?: number
      /** How long a fetch waits for the projector. Default: as in the service. */
      visibleMaxMs?: number
    },
  ): Retrieval
  ask(
    retrieval: Retrieval,
    ref: ProfileRef,
    wants?: 'cached' | 'fresh',
    organizationId?: string,
  ): Promise<Retrieved>
  /** Waits until the results of all fetches can be read back. */
  settle(retrieval: Retrieval): Promise<void>
  /** Retrieves a profile, and waits until the result can be read back. */
  askAndSettle(retrieval: Retrieval, ref: ProfileRef, wants?: 'cached' | 'fresh'): Promise<Retrieved>
  erase(ref: ProfileRef): Promise<Erasure>
  /** The number of keys for a subject's recorded data, which cannot be read without a key. */
  keysOf(subjectId: string): Promise<number>
  /** The HMACs of those identifiers that the projection has as aliases. */
  aliasesOf(...refs: readonly ProfileRef[]): Promise<string[]>
  hmacOf(ref: ProfileRef): string
  profileEvents(): Promise<DomainEvent[]>
}

export const lid = (value: string): ProfileRef => ({ kind: 'lid', value })
export const urn = (value: string): ProfileRef => ({ kind: 'urn', value })

let names = 0
/** Names and numbers that no other test in this file uses. */
export const freshLid = (): string => `person-${++names}-${randomUUID().slice(0, 8)}`
export const freshUrn = (): string => String(1_000_000 + ++names)

export const subjectIdOf = (retrieved: Retrieved): string =>
  retrieved.kind === 'found' || retrieved.kind === 'deleted' ? retrieved.subjectId : ''

/** Opens the scene for the calling test file. Each test starts more than a year after the previous one. */
export const retrievalScene = (): RetrievalScene => {
  let foundation: Foundation
  let stop = async (): Promise<void> => undefined
  let nowMs = Date.parse('2026-03-01T12:00:00.000Z')
  const clock = { now: () => nowMs }

  beforeAll(async () => {
    const database = await testDatabase()
    foundation = await openFoundation(
      parseConfig({
        DATABASE_URL: database.url,
        SECRET_KEY: 'a'.repeat(43),
        DATA_DIR: tmpdir(),
        KEY_DIR: database.keyDir,
      }),
      { logger },
    )
    const projector = createProjector({
      url: database.url,
      eventLog: foundation.eventLog,
      projections,
      seal: foundation.secrets.rowSeal,
      logger,
      owner: randomUUID(),
    })
    void projector.run()
    stop = async () => {
      await projector.stop()
      await foundation.close()
      await database.drop()
    }
  })
  afterAll(() => stop())
  beforeEach(() => {
    nowMs += 400 * dayMs
  })

  const vault = (): Vault =>
    createVault({ pool: foundation.pool, sealer: foundation.epochKeys.sealer('profile-key'), clock })

  const hmacOf = ({ kind, value }: ProfileRef): string =>
    foundation.secrets.identifierHmac(`${kind}:${value}`)

  const ask: RetrievalScene['ask'] = (retrieval, ref, wants = 'cached', organizationId = 'org_a') =>
    retrieval.retrieve<never>(ref, { wants, organizationId, beforeUpstream: async () => null })

  const settle = async (retrieval: Retrieval): Promise<void> => {
    await retrieval.close()
    // A fetch waits for the projector for two seconds at most.
    await foldedBy(foundation)
  }

  return {
    now: clock.now,
    move: (ms) => {
      nowMs += ms
    },
    foundation: () => foundation,
    vault,
    foundAs: (name, number, { redirected = false, observedAtMs = nowMs, ...more } = {}) => ({
      kind: 'found',
      ids: { lid: name, urn: number },
      data: { ...person, ...more },
      observedAtMs,
      redirected,
    }),
    source: (script, { name = 'http', kinds = ['lid', 'urn'] } = {}) => {
      const self: Source = {
        name,
        asked: [],
        script,
        fetch: async (ref) => {
          if (!kinds.includes(ref.kind)) return { kind: 'unsupported' }
          self.asked.push(ref)
          return self.script(ref)
        },
      }
      return self
    },
    processOver: (
      source,
      { vault: over = vault(), answerMaxMs = 60_000, fetchesMax = 100, ...limits } = {},
    ) =>
      createRetrieval({
        pool: foundation.pool,
        eventLog: foundation.eventLog,
        vault: over,
        claims: createFetchClaims(foundation.pool),
        provider: source,
        identifierHmac: foundation.secrets.identifierHmac,
        clock,
        logger,
        limits: { answerMaxMs, claimPauseMs: 5, fetchesMax, ...limits },
      }),
    ask,
    askAndSettle: async (retrieval, ref, wants) => {
      const retrieved = await ask(retrieval, ref, wants)
      await settle(retrieval)
      return retrieved
    },
    settle,
    erase: (ref) =>
      eraseProfile(
        {
          pool: foundation.pool,
          eventLog: foundation.eventLog,
          vault: vault(),
          identifierHmac: foundation.secrets.identifierHmac,
          eraseFromDataset: async () => [],
          erasures: foundation.erasures,
          clock,
        },
        ref,
        { actor: 'cli', note: null },
      ),
    keysOf: async (subjectId) => {
      const { rows } = await foundation.pool.query('select 1 from profile_keys where subject_id = $1', [
        subjectId,
      ])
      return rows.length
    },
    aliasesOf: async (...refs) => {
      const { rows } = await foundation.pool.query<{ hmac: string }>(
        'select hmac from profile_aliases where hmac = any($1::text[])',
        [refs.map(hmacOf)],
      )
      return rows.map(({ hmac }) => hmac)
    },
    hmacOf,
    profileEvents: async () => {
      const events: DomainEvent[] = []
      const done = new AbortController()
      for await (const item of foundation.eventLog.subscribe({
        after: logStart,
        prefixes: ['profile-'],
        signal: done.signal,
      })) {
        if (item.kind === 'events') events.push(...item.events.map(decodeEvent))
        if (item.kind === 'caught-up') break
      }
      done.abort()
      return events
    },
  }
}

const person = profileDataOf({ firstname: 'Zorvina', lastname: 'Quillfeather', numOfConnections: 12 })
