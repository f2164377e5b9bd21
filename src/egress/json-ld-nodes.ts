export type JsonObject = Readonly<Record<string, unknown>>

/**
 * Interprets the nodes of a page. There is at least one. Lists and `@graph`s are already flattened, but nested nodes are still in their parent. If
 * this throws, the page is malformed.
 */
export type ReadNodes<Input, Answer> = (nodes: readonly JsonObject[], input: Input) => Answer

/** Returns a node's types without the prefix of the vocabulary, such as `Person` or `Organization`. */
export const typesOf = (node: JsonObject): readonly string[] =>
  listOf(node['@type'])
    .filter((type) => typeof type === 'string')
    .map((type) => type.replace(/^(https?:\/\/(www\.)?schema\.org\/|schema:)/i, ''))

/** Returns the values of a member: the items of a list, one for any other value, and none for null or a missing member. */
export const listOf = (value: unknown): readonly unknown[] =>
  value === undefined || value === null ? [] : Array.isArray(value) ? value : [value]

/** Returns the first text or number in a member's values, even in `{"@value": …}`, or null. */
export const textOf = (value: unknown): string | null => {
  for (const one of listOf(value)) {
    const plain = isJsonObject(one) ? one['@value'] : one
    if (typeof plain === 'string') return plain
    if (typeof plain === 'number') return String(plain)
  }
  return null
}

export const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
