import type { AnyDeclared, Declared, HostDeclared } from './declare.ts'

type Modules<Kind> = () => readonly Promise<{ readonly declarations: readonly Kind[] }>[]

type Noun = {
  /** The first word of commands and queries. */
  readonly name: string
  readonly about: string
  readonly load?: Modules<Declared>
  /** The modules of commands that only the command line offers. The service does not load them. */
  readonly loadOnHost?: Modules<HostDeclared>
}

const capabilityModules: Modules<Declared> = () => [import('./capabilities.ts')]
const eventLogModules: Modules<Declared> = () => [
  import('./event-log/queries.ts'),
  import('./event-log/commands.ts'),
]
const installationModules: Modules<HostDeclared> = () => [import('./installation/commands.ts')]
const secretsModules: Modules<HostDeclared> = () => [import('./secrets/commands.ts')]

/**
 * Every noun, in the order used by the help. The command line loads only the modules of the noun that was typed, so that help and
 * other nouns start fast.
 */
export const nouns: readonly Noun[] = [
  {
    name: 'org',
    about: 'organizations: register and list',
    load: () => [import('./organizations/commands.ts')],
  },
  {
    name: 'key',
    about: 'API keys: issue, rotate, limit, revoke',
    load: () => [import('./keys/commands.ts')],
  },
  {
    name: 'credits',
    about: 'credits: grants, corrections, refunds, balances',
    load: () => [import('./credits/commands.ts'), import('./credits/queries.ts')],
  },
  {
    name: 'price',
    about: 'price books and prices of one organization',
    load: () => [import('./prices/commands.ts'), import('./prices/queries.ts')],
  },
  {
    name: 'ledger',
    about: 'ledgers: explain a call, verify, reconcile, show statements, close a month',
    load: () => [
      import('./ledgers/queries.ts'),
      import('./ledgers/exports.ts'),
      import('./ledgers/commands.ts'),
      import('./months/queries.ts'),
    ],
  },
  {
    name: 'rerate',
    about: 're-rates of calls with other prices',
    load: () => [import('./rerates/commands.ts'), import('./rerates/queries.ts')],
  },
  {
    name: 'projection',
    about: 'read models: position, rebuild, verify',
    load: () => [import('./projections/commands.ts')],
  },
  { name: 'jobs', about: 'scheduled jobs', load: () => [import('./jobs/commands.ts')] },
  { name: 'audit', about: 'changes and their authors', load: eventLogModules },
  {
    name: 'event-log',
    about: 'the event log: show, verify, checkpoints, copy',
    load: eventLogModules,
    loadOnHost: () => [import('./event-log/stores.ts')],
  },
  {
    name: 'backup',
    about: 'create, verify and restore a backup',
    loadOnHost: () => [import('./backup/commands.ts')],
  },
  { name: 'seed', about: 'a first organization, key and user', loadOnHost: installationModules },
  {
    name: 'user',
    about: 'people, their roles and tokens',
    load: () => [import('./users/commands.ts'), import('./users/queries.ts')],
  },
  {
    name: 'webhook',
    about: 'webhooks and their deliveries',
    load: () => [import('./webhooks/commands.ts')],
  },
  {
    name: 'pixel',
    about: 'limits, blocks and hits of pixels',
    load: () => [import('./pixel/commands.ts')],
  },
  {
    name: 'data',
    about: 'the data that answers are based on',
    load: () => [import('./sources/queries.ts')],
  },
  { name: 'geo', about: 'the location files', load: capabilityModules },
  { name: 'companies', about: 'company data', load: capabilityModules },
  { name: 'lists', about: 'lists of mail domains', load: capabilityModules },
  { name: 'profiles', about: 'profile data, and erasing a person', load: capabilityModules },
  {
    name: 'epoch-key',
    about: 'the keys whose destruction deletes sealed data',
    loadOnHost: secretsModules,
  },
  { name: 'secrets', about: 'the secret key of the installation', loadOnHost: secretsModules },
  {
    name: 'doctor',
    about: 'faults of this installation and their remedies',
    loadOnHost: installationModules,
  },
  {
    name: 'migrate',
    about: 'migrate the database to this release',
    loadOnHost: installationModules,
  },
  { name: 'completion', about: 'a completion script for a shell', loadOnHost: installationModules },
]

const loaded = async <Kind extends { readonly name: string }>(
  { name }: Noun,
  modules: Modules<Kind> = () => [],
): Promise<readonly Kind[]> =>
  (await Promise.all(modules()))
    .flatMap(({ declarations }) => declarations)
    .filter((one) => one.name.split(' ')[0] === name)

/** The commands and queries of a noun that every interface can offer. */
export const declaredOf = (noun: Noun): Promise<readonly Declared[]> => loaded(noun, noun.load)

/** The commands and queries of a noun on the command line; empty if the noun does not exist. */
export const commandsOfNoun = async (name: string | undefined): Promise<readonly AnyDeclared[]> => {
  const noun = nouns.find((one) => one.name === name)
  if (noun === undefined) return []
  return (await Promise.all([declaredOf(noun), loaded(noun, noun.loadOnHost)])).flat()
}

/** Every command and query of the command line. */
export const allCommands = async (): Promise<readonly AnyDeclared[]> =>
  (await Promise.all(nouns.map(({ name }) => commandsOfNoun(name)))).flat()
