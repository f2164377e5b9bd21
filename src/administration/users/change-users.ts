import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { inTransaction } from '../../concurrency/transaction.ts'
import { appendChained, lastOf } from '../../event-log/append-chained.ts'
import { repeatConflicts } from '../../event-log/append-next.ts'
import type { EventLog } from '../../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import { ledgerStream, operatorStream } from '../../events/streams.ts'
import { isTestOrganization } from '../../events/test-organization.ts'
import type { UserRole } from '../../events/users.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { InputFault } from '../input.ts'
import { provedUserOf } from '../operator.ts'
import { mayDo } from '../roles.ts'
import { noOperators, type OperatorState, operatorsSince } from './operators.ts'
import { type Standing, standingOf, type UserRow, userColumns } from './users.ts'

/**
 * Changes users. The event is written first and is authoritative. The row is then changed, in a transaction that holds a lock
 * shared by all processes.
 */

export type Parts = Pick<Foundation, 'pool' | 'eventLog'>

type UserEvent = DomainEventOf<
  | 'UserCreated'
  | 'UserRoleChanged'
  | 'UserPasswordChanged'
  | 'UserDisabled'
  | 'UserEnabled'
  | 'UserInvited'
  | 'UserInvitationAccepted'
  | 'UserInvitationWithdrawn'
  | 'SecondFactorSet'
  | 'SecondFactorRemoved'
  | 'RecoveryCodesRenewed'
  | 'RecoveryCodeUsed'
  | 'OperatorTokenIssued'
>

/** The events to record together, in this order, and then the change of the rows. */
type Decided<Done> = {
  /** `by` is the actor of one event, if it is not the actor of the change. */
  readonly events: readonly (UserEvent & { readonly by?: string })[]
  readonly writeRow: (client: pg.PoolClient) => Promise<Done>
}

/** An arbitrary number that no other lock uses. */
const usersLock = 7_105_003
const lockWaitMs = 10_000

/** All users, by name. */
export const userRows = async (client: Pick<pg.Pool, 'query'>): Promise<UserRow[]> =>
  (await client.query<UserRow>(`select ${userColumns} from users order by name`)).rows

export type Known = { readonly rows: readonly UserRow[]; readonly state: OperatorState }

/**
 * Makes one change at a time. `decide` can throw to refuse the change, and is called again if another process has written in the
 * meantime.
 */
export const changeUsers = async <Done>(
  { pool, eventLog }: Parts,
  actor: string,
  decide: (known: Known) => Decided<Done>,
): Promise<Done> =>
  inTransaction(pool, async (client) => {
    await client.query(`select set_config('lock_timeout', $1, true)`, [`${lockWaitMs}ms`])
    await client.query('select pg_advisory_xact_lock($1)', [usersLock])
    const rows = await userRows(client)
    const writeRow = await appendDecided(eventLog, actor, (state) => {
      const decided = decide({ rows, state })
      refuseOvertaken({ rows, state }, actor, decided.events)
      return decided
    })
    return writeRow(client)
  })

/**
 * Throws `CommandRefused` if the user who requested the change has lost the right to make it in the meantime. Users who are not
 * disabled may change themselves, and a person who accepts an invitation is not a user yet.
 */
const refuseOvertaken = (known: Known, actor: string, events: readonly UserEvent[]): void => {
  const person = provedUserOf(actor)
  if (person === null) return
  const standing = standingIn(known, person)
  const own = events.every(({ data }) => data.user === person)
  if (own && standing.kind === 'refused' && standing.why === 'missing') return
  if (standing.kind === 'refused' || !(own || mayDo(standing.role, 'users.change')))
    throw new CommandRefused(`${person} is no longer allowed to change users`)
}

/** Appends only if the stream still has the revision that the decision was based on, because a lock in the database can be lost. */
const appendDecided = async <Done>(
  eventLog: EventLog,
  actor: string,
  decide: (state: OperatorState) => Decided<Done>,
): Promise<Decided<Done>['writeRow']> => {
  // The id is random, so that the same change by another process is not mistaken for this one.
  const once = randomUUID()
  let state = noOperators
  return repeatConflicts(operatorStream, async () => {
    state = await operatorsSince(eventLog, state)
    const { events, writeRow } = decide(state)
    const effectiveAt = new Date().toISOString()
    const encoded = events.map(({ by = actor, ...event }, n) =>
      encodeEvent(event, { id: eventIdOf(operatorStream, once, n), actor: by, effectiveAt }),
    )
    await appendChained(eventLog, operatorStream, state.events === 0 ? 'none' : state.events - 1, encoded)
    return writeRow
  })
}

const standingIn = ({ rows, state }: Known, name: string): Standing =>
  standingOf(name, rows.find((row) => row.name === name) ?? null, state.users.get(name))

/**
 * The user with this name, enabled or disabled. `named` contains the members that all events about the user have in their data. Throws
 * `CommandRefused` if the user has no row, or if the event log contains a different user with this name.
 */
export const userIn = (known: Known, name: string) => {
  const row = known.rows.find((one) => one.name === name)
  const standing = standingIn(known, name)
  if (row === undefined || (standing.kind === 'refused' && standing.why === 'another'))
    throw new CommandRefused(standing.kind === 'refused' ? standing.says : `there is no user "${name}"`)
  return { row, standing, named: { user: name, user_created_at: row.created_at.toISOString() } }
}

/** Throws `CommandRefused` if no active admin would be left. */
export const refuseLastAdmin = (known: Known, name: string): void => {
  const isAdmin = (user: string): boolean => {
    const standing = standingIn(known, user)
    return standing.kind === 'acts' && standing.role === 'admin'
  }
  if (isAdmin(name) && !known.rows.some((row) => row.name !== name && isAdmin(row.name)))
    throw new CommandRefused(
      `${name} is the only active admin: create another admin first, because only an admin can assign roles`,
    )
}

/** Throws `InputFault` if the organization does not exist, or is a test organization. */
export const checkOrganization = async (
  { eventLog }: Parts,
  organizationId: string | null,
): Promise<void> => {
  if (organizationId === null) return
  if (isTestOrganization(organizationId))
    throw new InputFault('org', 'this is a test organization: give the organization to which it belongs')
  if ((await lastOf(eventLog, ledgerStream(organizationId))) === null)
    throw new InputFault('org', `there is no organization ${organizationId}; see "org list"`)
}

export const checkRole = (role: UserRole, organizationId: string | null): void => {
  if (role === 'partner' && organizationId === null)
    throw new InputFault('org', 'a partner needs an organization: give its id')
  if (role !== 'partner' && organizationId !== null)
    throw new InputFault('org', `only a partner has an organization; ${role} can see all of them`)
}
