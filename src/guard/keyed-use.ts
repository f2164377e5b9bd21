/** A SECRET_KEY that was in use. */
export type FormerKey = {
  readonly id: string
  /** What does not name its key is under this one. */
  readonly first: boolean
  /** Null: from the beginning. */
  readonly inUseFrom: Date | null
  /** When another came into use; null: none did. */
  readonly inUseUntil: Date | null
}

/** `more`: counting ended there. */
export type Counted = { readonly count: number; readonly more: boolean }

/** Something that is kept under keys derived from SECRET_KEY, and what a rotation does with it. */
export type KeyedUse = {
  /** In the plural, for people: `webhook secrets`. */
  readonly name: string
  /**
   * `renewed`: made anew under the key in use. `when_used`: made anew when it is used next. `ends`: by itself, within
   * a month. `kept`: for ever, for it cannot be made anew.
   */
  readonly fate: 'renewed' | 'when_used' | 'ends' | 'kept'
  /** How much is under each of the keys, by their ids; too much rather than too little where it cannot be told. */
  readonly under: (keys: readonly FormerKey[]) => Promise<ReadonlyMap<string, Counted>>
  /**
   * Makes a portion anew. Repeatable: what is under the key in use is left alone. `next` is where to go on; null at the end.
   * Absent where the fate is another.
   */
  readonly renew?: (after: string) => Promise<{ readonly renewed: number; readonly next: string | null }>
  /** What of it may be lost where a key is given up, and what may not. Absent: nothing may, `under` counts it. */
  readonly dependingOn?: (key: FormerKey) => Promise<readonly DependingOn[]>
}

/** `name` is in the plural; `prevents` says why the key cannot be given up, `loses` what is no longer possible without it. */
export type DependingOn = { readonly name: string; readonly count: number } & (
  | { readonly prevents: string }
  | { readonly loses: string }
)

/** `under` names keys by id; null is the first. */
export const tally = (
  under: readonly (string | null)[],
  keys: readonly FormerKey[],
): ReadonlyMap<string, Counted> => {
  const firstId = keys.find(({ first }) => first)?.id
  const found = new Map<string, number>()
  for (const one of under) {
    const id = one ?? firstId
    if (id !== undefined) found.set(id, (found.get(id) ?? 0) + 1)
  }
  return new Map([...found].map(([id, count]) => [id, { count, more: false }]))
}
