/**
 * An organization that has test keys has a second ledger for them: that of its test organization, an organization of its own whose id
 * is the live id with `org_test_` in place of `org_`. So everything of a test key, such as calls, credits, pixel rules and idempotency
 * keys, is kept apart by the same rule that separates any two organizations.
 */

const livePrefix = 'org_'
const testPrefix = 'org_test_'

export const isTestOrganization = (organizationId: string): boolean => organizationId.startsWith(testPrefix)

/** The id of an organization's test organization; for a test organization its own id. */
export const testOrganizationOf = (organizationId: string): string =>
  isTestOrganization(organizationId)
    ? organizationId
    : `${testPrefix}${organizationId.slice(livePrefix.length)}`

/** The organizations that pay: sums of money over organizations leave out the test organizations. */
export const payingOf = (organizationIds: readonly string[]): string[] =>
  organizationIds.filter((organizationId) => !isTestOrganization(organizationId))
