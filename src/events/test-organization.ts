/**
 * The test keys of an organization belong to its test organization, which has its own ledger. The id of the test
 * organization is the live id with `org_test_` instead of `org_`. Calls, credits, pixel rules and idempotency keys of
 * test keys are therefore as separate as those of any other organization.
 */

const livePrefix = 'org_'
const testPrefix = 'org_test_'

export const isTestOrganization = (organizationId: string): boolean => organizationId.startsWith(testPrefix)

/** Returns the id of an organization's test organization. For a test organization, returns its own id. */
export const testOrganizationOf = (organizationId: string): string =>
  isTestOrganization(organizationId)
    ? organizationId
    : `${testPrefix}${organizationId.slice(livePrefix.length)}`

/** Returns the id of the organization to which a test organization belongs. For any other organization, returns its own id. */
export const liveOrganizationOf = (organizationId: string): string =>
  isTestOrganization(organizationId)
    ? `${livePrefix}${organizationId.slice(testPrefix.length)}`
    : organizationId

/** Removes test organizations, which do not pay and are not part of totals. */
export const payingOf = (organizationIds: readonly string[]): string[] =>
  organizationIds.filter((organizationId) => !isTestOrganization(organizationId))
