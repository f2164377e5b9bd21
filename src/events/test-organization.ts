/**
 * The test keys of an organization belong to its test organization. It has its own ledger, and its id is the live id
 * with `org_test_` in place of `org_`. So calls, credits, pixel rules and idempotency keys of test keys are as separate
 * as those of any other organization.
 */

const livePrefix = 'org_'
const testPrefix = 'org_test_'

export const isTestOrganization = (organizationId: string): boolean => organizationId.startsWith(testPrefix)

/** The id of an organization's test organization. A test organization returns its own id. */
export const testOrganizationOf = (organizationId: string): string =>
  isTestOrganization(organizationId)
    ? organizationId
    : `${testPrefix}${organizationId.slice(livePrefix.length)}`

/** The id of the organization that a test organization belongs to. For any other organization, returns its own id. */
export const liveOrganizationOf = (organizationId: string): string =>
  isTestOrganization(organizationId)
    ? `${livePrefix}${organizationId.slice(testPrefix.length)}`
    : organizationId

/** The organizations that pay. Totals over organizations leave out test organizations. */
export const payingOf = (organizationIds: readonly string[]): string[] =>
  organizationIds.filter((organizationId) => !isTestOrganization(organizationId))
