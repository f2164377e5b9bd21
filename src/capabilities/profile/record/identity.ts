/**
 * Whether an answer is about the person who was asked for. Identifiers are released and taken over by others, and sources confuse
 * people up: a source's word alone never makes one person's data another's.
 */

export type KnownAlias = { readonly kind: 'lid' | 'urn'; readonly hmac: string }

type AnsweredIds = { readonly lid: string; readonly urn: string | null }

/**
 * `asked` and the answer's ids are keyed HMACs. `known` are the recently confirmed identifiers of the person that `asked` leads
 * to. `redirected`: the source itself says that the identifier moved on.
 *
 * A number never changes hands: an answer with another number than the known one is about another person, even under the same name.
 */
export const belongs = (
  asked: KnownAlias,
  answered: AnsweredIds,
  { known, redirected }: { known: readonly KnownAlias[]; redirected: boolean },
): boolean => {
  const has = (kind: KnownAlias['kind'], hmac: string): boolean =>
    known.some((alias) => alias.kind === kind && alias.hmac === hmac)
  const numbered = known.some(({ kind }) => kind === 'urn')
  if (answered.urn !== null && numbered && !has('urn', answered.urn)) return false
  if (asked.kind === 'urn')
    return answered.urn === null ? has('lid', answered.lid) : answered.urn === asked.hmac || redirected
  if (answered.lid === asked.hmac || redirected || has('lid', answered.lid)) return true
  return answered.urn !== null && has('urn', answered.urn)
}
