import { parseCredits } from '../../billing/money.ts'
import { testOrganizationOf } from '../../events/test-organization.ts'
import { labelMax } from '../../events/text.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { availableOf } from '../../ledger/account.ts'
import { CommandRefused } from '../../ledger/write/commit.ts'
import { balance, grant } from '../credits/credits.ts'

/** A test organization gets this many credits whenever a test key is issued and fewer than `testCreditsMin` are left. */
const testCredits = parseCredits('1000000')
const testCreditsMin = parseCredits('100000')

const suffix = ' (test)'

/**
 * The test organization of a registered organization, with an open ledger and test credits: keys issued to it are
 * test keys. Repeated calls open nothing twice. Throws `CommandRefused` if the organization does not exist.
 */
export const openTestOrganization = async (
  foundation: Pick<Foundation, 'ledger'>,
  { organizationId: asked, actor }: { organizationId: string; actor: string },
): Promise<string> => {
  const { ledger } = foundation
  const organizationId = testOrganizationOf(asked)
  if (!(await ledger.account(organizationId)).registered) {
    const { name } = await balance(foundation, asked)
    const request = { name: `${cutTo(name, labelMax - suffix.length)}${suffix}`, overdraftLimit: 0n }
    try {
      const envelope = { key: 'register', atMs: Date.now(), actor }
      await ledger.submit(organizationId, { ...envelope, kind: 'register', ...request })
    } catch (error) {
      // Two operators at the same time: the other was first.
      if (!(error instanceof CommandRefused) || !(await ledger.account(organizationId)).registered)
        throw error
    }
  }
  const available = availableOf(await ledger.account(organizationId), Date.now())
  if (available < testCreditsMin)
    await grant(foundation, {
      organizationId,
      amount: testCredits,
      priority: 100,
      expiresAt: null,
      reason: 'test credits',
      actor,
    })
  return organizationId
}

/** Never leaves half of a character. */
const cutTo = (text: string, charactersMax: number): string =>
  text.length <= charactersMax
    ? text
    : text
        .slice(0, charactersMax)
        .toWellFormed()
        .replace(/\uFFFD$/, '')
