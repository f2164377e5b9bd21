/**
 * An organization that has test keys has a second ledger for them: that of its test organization, an organization of its own whose id
 * is the live one's with `org_test_` in place of `org_`. So whatever a test key does, in calls, credits, rules of pixels or keys of
 * idempotency, is kept apart by the same rule that keeps two organizations apart, and no other.
 */

const livePrefix = 'org_'
const testPrefix = 'org_test_'

export const isTestOrganization = (organizationId: string): boolean => organizationId.startsWith(testPrefix)

/** The id of an organization's test organization; of a test organization its own. */
export const testOrganizationOf = (organizationId: string): string =>
  isTestOrganization(organizationId)
    ? organizationId
    : `${testPrefix}${organizationId.slice(livePrefix.length)}`

/** Those that pay: what adds money up over organizations leaves out the test organizations. */
export const payingOf = (organizationIds: readonly string[]): string[] =>
  organizationIds.filter((organizationId) => !isTestOrganization(organizationId))
