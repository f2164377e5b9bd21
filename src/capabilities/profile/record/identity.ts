/**
 * Identifiers are released and reused, and sources confuse people. So an answer is attributed to a known person only if there is evidence.
 */

export type KnownAlias = { readonly kind: 'lid' | 'urn'; readonly hmac: string }

type AnsweredIds = { readonly lid: string; readonly urn: string | null }

/**
 * Whether an answer is about the person asked for. `asked` and `answered` are keyed HMACs. `known` are recently confirmed identifiers of the
 * person that `asked` leads to. `redirected` means that the source itself reported a rename.
 *
 * A number never passes to another person, so an answer with a different number than the known one is about another person.
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
