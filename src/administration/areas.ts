import type { Declared } from './declare.ts'

type Area = {
  /** The first word of each command and query in the area. */
  readonly nouns: readonly string[]
  readonly load: () => readonly Promise<{ readonly declarations: readonly Declared[] }>[]
}

/** The modules that declare the commands and queries of each noun. The command line loads only the modules for the noun that was typed. */
export const areas: readonly Area[] = [
  { nouns: ['org'], load: () => [import('./organizations/commands.ts')] },
  { nouns: ['credits'], load: () => [import('./credits/commands.ts'), import('./credits/queries.ts')] },
  { nouns: ['price'], load: () => [import('./prices/commands.ts'), import('./prices/queries.ts')] },
  { nouns: ['rerate'], load: () => [import('./rerates/commands.ts'), import('./rerates/queries.ts')] },
  {
    nouns: ['ledger'],
    load: () => [
      import('./ledgers/queries.ts'),
      import('./ledgers/exports.ts'),
      import('./ledgers/commands.ts'),
      import('./months/queries.ts'),
    ],
  },
  { nouns: ['projection'], load: () => [import('./projections/commands.ts')] },
  { nouns: ['jobs'], load: () => [import('./jobs/commands.ts')] },
  { nouns: ['key'], load: () => [import('./keys/commands.ts')] },
  { nouns: ['webhook'], load: () => [import('./webhooks/commands.ts')] },
  {
    nouns: ['audit', 'event-log'],
    load: () => [import('./event-log/queries.ts'), import('./event-log/commands.ts')],
  },
  { nouns: ['user'], load: () => [import('./users/commands.ts'), import('./users/queries.ts')] },
  { nouns: ['pixel'], load: () => [import('./pixel/commands.ts')] },
  { nouns: ['data'], load: () => [import('./sources/queries.ts')] },
  { nouns: ['geo', 'companies', 'lists', 'profiles'], load: () => [import('./capabilities.ts')] },
]

/** The commands and queries of the given areas, in the order used by the help. */
export const declaredIn = async (some: readonly Area[]): Promise<readonly Declared[]> =>
  (await Promise.all(some.flatMap(({ load }) => load()))).flatMap(({ declarations }) => declarations)
