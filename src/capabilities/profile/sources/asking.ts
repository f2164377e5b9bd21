import type { AskOptions, ProfileIds, ProfileProvider, ProfileRef, ProviderAnswer } from './provider.ts'

/**
 * Asks a provider for a person by any supported identifier. A person who is not found under one identifier is not necessarily deleted,
 * because names change, and some sources cannot be asked by number.
 */

type Ask = (ref: ProfileRef) => Promise<ProviderAnswer>

const failed = ({ kind }: ProviderAnswer): boolean =>
  kind === 'transient' || kind === 'rate_limited' || kind === 'malformed'

/** `idsOf` returns the identifiers last received for the person of `ref`; null if they are unknown or unreadable. */
export const askFor = async (
  provider: Pick<ProfileProvider, 'fetch'>,
  ref: ProfileRef,
  { idsOf, ...options }: AskOptions & { idsOf: () => Promise<ProfileIds | null> },
): Promise<ProviderAnswer> => {
  const ask: Ask = (one) => provider.fetch(one, options)
  const first = await ask(ref)
  if (first.kind === 'unsupported') return (await askByOther(ask, ref, await idsOf())) ?? first
  if (first.kind !== 'not_found' || ref.kind !== 'lid') return first
  const number = (await idsOf())?.urn ?? null
  return number === null ? first : askByNumber(ask, number, first)
}

const askByOther = async (
  ask: Ask,
  ref: ProfileRef,
  ids: ProfileIds | null,
): Promise<ProviderAnswer | null> => {
  if (ids === null) return null
  if (ref.kind === 'urn') return ask({ kind: 'lid', value: ids.lid })
  return ids.urn === null ? null : ask({ kind: 'urn', value: ids.urn })
}

/** Asks by number after no person was found by name. The person may have changed the name, but numbers never change. */
const askByNumber = async (ask: Ask, number: string, first: ProviderAnswer): Promise<ProviderAnswer> => {
  const answer = await ask({ kind: 'urn', value: number })
  if (answer.kind === 'found') return answer.ids.urn === number ? { ...answer, redirected: true } : first
  return failed(answer) || answer.kind === 'gone' ? answer : first
}
