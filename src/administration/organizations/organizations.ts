import type { Logger } from 'pino'
import { ulid } from 'ulid'
import { allOrganizations, type OrganizationRow } from '../../../projections/accounts.ts'
import type { MicroCredits } from '../../billing/money.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { catchUp } from '../projections/catch-up.ts'

/** Registers an organization and opens its ledger. */
export const createOrganization = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { name, overdraftLimit, actor }: { name: string; overdraftLimit: MicroCredits; actor: string },
): Promise<{ organizationId: string }> => {
  const organizationId = `org_${ulid()}`
  await ledger.submit(organizationId, {
    key: 'register',
    atMs: Date.now(),
    actor,
    kind: 'register',
    name,
    overdraftLimit,
  })
  return { organizationId }
}

/** Every organization, including everything in the event log at the time of the call. */
export const listOrganizations = async (
  foundation: Foundation,
  logger: Logger,
): Promise<OrganizationRow[]> => {
  await catchUp(foundation, logger)
  const { text, values } = allOrganizations(Date.now())
  return (await foundation.pool.query<OrganizationRow>(text, [...values])).rows
}

/** The ids of all organizations, in order of registration. */
export const organizationIds = async (foundation: Foundation, logger: Logger): Promise<string[]> =>
  (await listOrganizations(foundation, logger)).map(({ organization_id }) => organization_id)
