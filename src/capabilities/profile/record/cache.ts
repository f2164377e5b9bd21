import { judge, type Known } from './freshness.ts'
import type { LookUps } from './look-ups.ts'
import type { Asked, Payload, Retrieved } from './retrieved.ts'
import type { Vault } from './vault.ts'

export type CacheParts = {
  readonly lookUps: LookUps
  readonly vault: Pick<Vault, 'openWith'>
  readonly clock: { now(): number }
}

type Cached = {
  /** The answer that is available immediately; null if a provider must be asked. */
  readonly served: Retrieved | null
  readonly subjectId: string | null
}

/** Reads and decrypts the cached data about a person. */
export const readCache = async (
  { lookUps, vault, clock }: CacheParts,
  asked: Asked,
  wants: 'cached' | 'fresh',
): Promise<Cached> => {
  const { suppressed, row, sealedKey } = await lookUps.of(asked.hmac)
  if (suppressed) return { served: { kind: 'missing' }, subjectId: null }
  const known = judge(row, clock.now(), wants)
  const served = answerFrom({ vault, clock }, known, sealedKey)
  return {
    // Cached data from a moment ago counts as fresh for a caller who wants fresh data (decision 20).
    served: served?.kind === 'found' && wants === 'fresh' ? { ...served, source: 'fresh' } : served,
    subjectId: known.kind === 'fetch' || known.kind === 'data' ? known.subjectId : null,
  }
}

const answerFrom = (
  { vault, clock }: Pick<CacheParts, 'vault' | 'clock'>,
  known: Known,
  sealedKey: string | null,
): Retrieved | null => {
  const ageOf = (atMs: number): number => Math.max(0, clock.now() - atMs)
  if (known.kind === 'missing') return { kind: 'missing' }
  if (known.kind === 'deleted')
    return { kind: 'deleted', subjectId: known.subjectId, ageMs: ageOf(known.goneAtMs) }
  if (known.kind === 'fetch') return null
  const text = vault.openWith(sealedKey, known)
  if (text === null) return null
  const { ids, data } = JSON.parse(text) as Payload
  return {
    kind: 'found',
    source: 'cached',
    ageMs: ageOf(known.observedAtMs),
    subjectId: known.subjectId,
    ids,
    data,
  }
}
