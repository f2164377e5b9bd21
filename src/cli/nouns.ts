import type { Declared } from '../administration/declare.ts'
import type { Command } from './command.ts'

/** The nouns of the command line. Each loads its commands when it is typed, so that help and other nouns do not wait for them. */

type Noun = {
  readonly name: string
  readonly about: string
  readonly load: () => Promise<readonly Command[]>
}

/** Commands and queries that every interface offers. */
const declared = async (declarations: Promise<readonly Declared[]>): Promise<readonly Command[]> => {
  const [{ commandOf }, all] = await Promise.all([import('./declared.ts'), declarations])
  return all.map(commandOf)
}

/** Commands about the data of a capability. */
const ofCapabilities = (noun: string) => () =>
  declared(
    import('../capabilities/index.ts').then(({ capabilityDeclarations }) =>
      capabilityDeclarations.filter(({ name }) => name.startsWith(`${noun} `)),
    ),
  )

/** Two nouns are about the event log. */
const eventLogDeclarations = async (noun: string): Promise<readonly Declared[]> => {
  const [{ eventLogQueries }, { eventLogCommands }] = await Promise.all([
    import('../administration/event-log/queries.ts'),
    import('../administration/event-log/commands.ts'),
  ])
  return [...eventLogQueries, ...eventLogCommands].filter(({ name }) => name.startsWith(`${noun} `))
}

/** In the order of the help. */
export const nouns: readonly Noun[] = [
  {
    name: 'org',
    about: 'organizations: register and list',
    load: () =>
      declared(
        import('../administration/organizations/commands.ts').then((of) => of.organizationDeclarations),
      ),
  },
  {
    name: 'key',
    about: 'API keys: issue, rotate, limit, revoke',
    load: () => declared(import('../administration/keys/commands.ts').then((of) => of.keyDeclarations)),
  },
  {
    name: 'credits',
    about: 'credits: grants, corrections, refunds, balances',
    load: () =>
      declared(
        Promise.all([
          import('../administration/credits/commands.ts'),
          import('../administration/credits/queries.ts'),
        ]).then(([{ creditCommands }, { creditQueries }]) => [...creditCommands, ...creditQueries]),
      ),
  },
  {
    name: 'price',
    about: 'price books and prices of one organization',
    load: () =>
      declared(
        Promise.all([
          import('../administration/prices/commands.ts'),
          import('../administration/prices/queries.ts'),
        ]).then(([{ priceCommands }, { priceQueries }]) => [...priceCommands, ...priceQueries]),
      ),
  },
  {
    name: 'ledger',
    about: 'ledgers: explain a call, verify, reconcile, statements, closing a month',
    load: () =>
      declared(
        Promise.all([
          import('../administration/ledgers/queries.ts'),
          import('../administration/ledgers/exports.ts'),
          import('../administration/ledgers/commands.ts'),
        ]).then(([{ ledgerQueries }, { ledgerExports }, { ledgerDeclarations }]) => [
          ...ledgerQueries,
          ...ledgerExports,
          ...ledgerDeclarations,
        ]),
      ),
  },
  {
    name: 'rerate',
    about: 're-rating calls by another price book',
    load: () =>
      declared(
        Promise.all([
          import('../administration/rerates/commands.ts'),
          import('../administration/rerates/queries.ts'),
        ]).then(([{ rerateCommands }, { rerateQueries }]) => [...rerateCommands, ...rerateQueries]),
      ),
  },
  {
    name: 'projection',
    about: 'read models: position, rebuild, verify',
    load: () =>
      declared(import('../administration/projections/commands.ts').then((of) => of.projectionDeclarations)),
  },
  {
    name: 'jobs',
    about: 'scheduled jobs',
    load: () => declared(import('../administration/jobs/commands.ts').then((of) => of.jobDeclarations)),
  },
  {
    name: 'audit',
    about: 'who changed what',
    load: () => declared(eventLogDeclarations('audit')),
  },
  {
    name: 'event-log',
    about: 'the event log: show, verify, checkpoints, copy',
    load: async () => [
      ...(await declared(eventLogDeclarations('event-log'))),
      ...(await import('./event-log.ts')).eventLogCommands,
    ],
  },
  {
    name: 'backup',
    about: 'create, verify and restore a backup',
    load: async () => (await import('./backup.ts')).backupCommands,
  },
  {
    name: 'seed',
    about: 'a first organization, key and user',
    load: async () => (await import('./seed.ts')).seedCommands,
  },
  {
    name: 'user',
    about: 'people, their roles and tokens',
    load: () =>
      declared(
        Promise.all([
          import('../administration/users/commands.ts'),
          import('../administration/users/queries.ts'),
        ]).then(([{ userCommands }, { userQueries }]) => [...userCommands, ...userQueries]),
      ),
  },
  {
    name: 'webhook',
    about: 'webhooks and their deliveries',
    load: () =>
      declared(import('../administration/webhooks/commands.ts').then((of) => of.webhookDeclarations)),
  },
  {
    name: 'pixel',
    about: 'limits, blocks and hits of pixels',
    load: () => declared(import('../administration/pixel/commands.ts').then((of) => of.pixelDeclarations)),
  },
  {
    name: 'data',
    about: 'the data that answers are based on',
    load: () => declared(import('../administration/sources/queries.ts').then((of) => of.sourceDeclarations)),
  },
  { name: 'geo', about: 'the location files', load: ofCapabilities('geo') },
  { name: 'companies', about: 'company data', load: ofCapabilities('companies') },
  { name: 'lists', about: 'lists of mail domains', load: ofCapabilities('lists') },
  { name: 'profiles', about: 'profile data, and erasing a person', load: ofCapabilities('profiles') },
  {
    name: 'epoch-key',
    about: 'the keys whose destruction deletes sealed data',
    load: async () => (await import('./epoch-key.ts')).epochKeyCommands,
  },
  {
    name: 'secrets',
    about: 'the secret key of the installation',
    load: async () => (await import('./secrets.ts')).secretsCommands,
  },
  {
    name: 'doctor',
    about: 'faults of this installation, with remedies',
    load: async () => [(await import('./doctor.ts')).doctorCommand],
  },
  {
    name: 'migrate',
    about: 'bring the database to this release',
    load: async () => [(await import('./migrate.ts')).migrateCommand],
  },
  {
    name: 'completion',
    about: 'a completion script for a shell',
    load: async () => [(await import('./completion.ts')).completionCommand(allCommands)],
  },
]

/** The commands of one noun; empty if the noun does not exist. */
export const commandsOfNoun = async (name: string | undefined): Promise<readonly Command[]> =>
  (await nouns.find((one) => one.name === name)?.load()) ?? []

export const allCommands = async (): Promise<readonly Command[]> =>
  (await Promise.all(nouns.map(({ load }) => load()))).flat()
