import { rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseCredits } from '../billing/money.ts'
import { permission } from '../events/capabilities.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { grant } from './credits/credits.ts'
import { defaultKeyLimits, issueKey } from './keys/api-keys.ts'
import { createOrganization } from './organizations/organizations.ts'
import { changePassword, createUser } from './users/user-changes.ts'
import { userRow } from './users/users.ts'

/** A demo: an organization, a key with every permission, credits and a dashboard user. */
export type Demo = {
  readonly organization_id: string
  readonly api_key_id: string
  readonly api_key: string
  readonly api_url: string
  readonly dashboard_url: string
  readonly dashboard_user: string
  readonly dashboard_password: string
}

const demoCredits = '1000'
export const demoFile = 'demo.json'

/** Seeds a demo organization; every call creates another one. */
export const seedDemo = async (
  foundation: Foundation,
  { apiUrl, dashboardUrl, actor }: { apiUrl: string; dashboardUrl: string; actor: string },
): Promise<Demo> => {
  const name = 'demo'
  const { password } =
    (await userRow(foundation.pool, name)) === null
      ? await createUser(foundation, { name, role: 'admin', organizationId: null, actor })
      : await changePassword(foundation, { name, actor })
  const { organizationId } = await createOrganization(foundation, { name: 'Demo', overdraftLimit: 0n, actor })
  await grant(foundation, {
    organizationId,
    amount: parseCredits(demoCredits),
    priority: 100,
    expiresAt: null,
    reason: 'demo credits',
    actor,
  })
  const { keyId, apiKey } = await issueKey(foundation, {
    organizationId,
    name: 'demo',
    permissions: permission.options,
    limits: defaultKeyLimits,
    allowedCidrs: [],
    expiresAt: null,
    actor,
  })
  return {
    organization_id: organizationId,
    api_key_id: keyId,
    api_key: apiKey,
    api_url: apiUrl,
    dashboard_url: dashboardUrl,
    dashboard_user: name,
    dashboard_password: password,
  }
}

/** Writes demo.json into the data directory, readable by its owner only. */
export const writeDemo = async (dataDir: string, demo: Demo): Promise<void> => {
  const path = join(dataDir, demoFile)
  await writeFile(`${path}.tmp`, `${JSON.stringify(demo, null, 2)}\n`, { mode: 0o600 })
  await rename(`${path}.tmp`, path)
}
