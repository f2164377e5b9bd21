import { type EventLog, logStart } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { noOperators, operatorsSince } from './users/operators.ts'

/** The prerequisites for using an installation, and the commands that create them. */

type FirstStep = {
  /** The missing prerequisite, for a sentence. */
  readonly missing: string
  /** The words after `npm run -s cli --`. */
  readonly command: string
  readonly note: string
}

const userStep: FirstStep = {
  missing: 'no one can sign in yet',
  command: 'user create ada',
  note: 'the first user is admin; the command prints the password once',
}
const organizationStep: FirstStep = {
  missing: 'there is no organization yet',
  command: 'org create "Acme"',
  note: 'its keys are issued in the dashboard, or with "key issue"',
}

/** How to run a command on this host, and in Docker Compose. */
export const runs = {
  here: (command: string): string => `npm run -s cli -- ${command}`,
  compose: (command: string): string => `docker compose run --rm --no-deps migrate ${command}`,
} as const

/** The missing prerequisites, as a sentence. */
export const missingSentence = (steps: readonly FirstStep[]): string => {
  const text = steps.map(({ missing }) => missing).join(', and ')
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}

type Parts = Pick<Foundation, 'pool' | 'eventLog'>

/** Whether any user exists in the rows or in the event log. Disabled users and users with a lost row also count. */
const anyUser = async ({ pool, eventLog }: Parts): Promise<boolean> => {
  const { rows } = await pool.query<{ any: boolean }>('select exists (select from users) as any')
  return rows[0]?.any === true || (await operatorsSince(eventLog, noOperators)).users.size > 0
}

/**
 * Whether the event log contains an organization. If the first start failed before it created an organization, the next start
 * counts as the first one.
 */
export const anyOrganization = async ({
  eventLog,
}: {
  eventLog: Pick<EventLog, 'subscribe'>
}): Promise<boolean> => {
  const looking = new AbortController()
  try {
    for await (const item of eventLog.subscribe({
      after: logStart,
      prefixes: ['ledger-'],
      batchMax: 1,
      signal: looking.signal,
    })) {
      if (item.kind === 'events') return true
      if (item.kind === 'caught-up') return false
    }
    return true
  } finally {
    looking.abort()
  }
}

/** The next steps, in order; empty once there is a user and an organization. Throws if a store is unavailable. */
export const firstSteps = async (parts: Parts): Promise<readonly FirstStep[]> => {
  const [users, organizations] = [await anyUser(parts), await anyOrganization(parts)]
  return [...(users ? [] : [userStep]), ...(organizations ? [] : [organizationStep])]
}
