import type { Command } from './command.ts'

/** The nouns of the command line. A noun's commands are loaded when it is typed, so that help and other nouns start fast. */

type Noun = {
  readonly name: string
  readonly about: string
  /** Commands that only the command line has. */
  readonly own?: () => Promise<readonly Command[]>
}

/** The help lists the nouns in this order. */
export const nouns: readonly Noun[] = [
  { name: 'org', about: 'organizations: register and list' },
  { name: 'key', about: 'API keys: issue, rotate, limit, revoke' },
  { name: 'credits', about: 'credits: grants, corrections, refunds, balances' },
  { name: 'price', about: 'price books and prices of one organization' },
  { name: 'ledger', about: 'ledgers: explain a call, verify, reconcile, show statements, close a month' },
  { name: 'rerate', about: 're-rates of calls with other prices' },
  { name: 'projection', about: 'read models: position, rebuild, verify' },
  { name: 'jobs', about: 'scheduled jobs' },
  { name: 'audit', about: 'changes and their authors' },
  {
    name: 'event-log',
    about: 'the event log: show, verify, checkpoints, copy',
    own: async () => (await import('./event-log.ts')).eventLogCommands,
  },
  {
    name: 'backup',
    about: 'create, verify and restore a backup',
    own: async () => (await import('./backup.ts')).backupCommands,
  },
  {
    name: 'seed',
    about: 'a first organization, key and user',
    own: async () => (await import('./seed.ts')).seedCommands,
  },
  { name: 'user', about: 'people, their roles and tokens' },
  { name: 'webhook', about: 'webhooks and their deliveries' },
  { name: 'pixel', about: 'limits, blocks and hits of pixels' },
  { name: 'data', about: 'the data that answers are based on' },
  { name: 'geo', about: 'the location files' },
  { name: 'companies', about: 'company data' },
  { name: 'lists', about: 'lists of mail domains' },
  { name: 'profiles', about: 'profile data, and erasing a person' },
  {
    name: 'epoch-key',
    about: 'the keys whose destruction deletes sealed data',
    own: async () => (await import('./epoch-key.ts')).epochKeyCommands,
  },
  {
    name: 'secrets',
    about: 'the secret key of the installation',
    own: async () => (await import('./secrets.ts')).secretsCommands,
  },
  {
    name: 'doctor',
    about: 'faults of this installation and their remedies',
    own: async () => [(await import('./doctor.ts')).doctorCommand],
  },
  {
    name: 'migrate',
    about: 'migrate the database to this release',
    own: async () => [(await import('./migrate.ts')).migrateCommand],
  },
  {
    name: 'completion',
    about: 'a completion script for a shell',
    own: async () => [(await import('./completion.ts')).completionCommand(allCommands)],
  },
]

/** Returns the commands of one noun; empty if the noun does not exist. */
export const commandsOfNoun = async (name: string | undefined): Promise<readonly Command[]> => {
  const noun = nouns.find((one) => one.name === name)
  if (noun === undefined) return []
  const [declared, own] = await Promise.all([declaredOf(noun.name), noun.own?.()])
  return [...declared, ...(own ?? [])]
}

const declaredOf = async (noun: string): Promise<readonly Command[]> => {
  const { areas, declaredIn } = await import('../administration/areas.ts')
  const some = areas.filter((one) => one.nouns.includes(noun))
  if (some.length === 0) return []
  const [{ commandOf }, declared] = await Promise.all([import('./declared.ts'), declaredIn(some)])
  return declared.filter(({ name }) => name.startsWith(`${noun} `)).map(commandOf)
}

export const allCommands = async (): Promise<readonly Command[]> =>
  (await Promise.all(nouns.map(({ name }) => commandsOfNoun(name)))).flat()
