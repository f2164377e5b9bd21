import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { parseCredits } from '../billing/money.ts'
import { permission } from '../events/capabilities.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { grant } from './credits/credits.ts'
import { defaultKeyLimits, issueKey } from './keys/api-keys.ts'
import { createOrganization } from './organizations/organizations.ts'
import { changePassword, createUser } from './users/user-changes.ts'
import { userRow } from './users/users.ts'

/** A demo: an organization, a key with every permission, credits and a dashboard user. */
const demo = z.object({
  organization_id: z.string(),
  api_key_id: z.string(),
  api_key: z.string(),
  api_url: z.string(),
  dashboard_url: z.string(),
  dashboard_user: z.string(),
  dashboard_password: z.string(),
})
export type Demo = Readonly<z.infer<typeof demo>>

const demoCredits = '1000'
export const demoFile = 'demo.json'
export const demoUser = 'demo'

/** Seeds a demo organization; every call creates a new one. */
export const seedDemo = async (
  foundation: Foundation,
  { apiUrl, dashboardUrl, actor }: { apiUrl: string; dashboardUrl: string; actor: string },
): Promise<Demo> => {
  const name = demoUser
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

/** Reads demo.json from the data directory; null if there is no demo, or if the file cannot be read. */
export const readDemo = async (dataDir: string): Promise<Demo | null> => {
  try {
    return demo.parse(JSON.parse(await readFile(join(dataDir, demoFile), 'utf8')))
  } catch {
    return null
  }
}
