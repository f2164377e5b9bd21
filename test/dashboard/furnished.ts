/** A dashboard with data on every page, served on a port, and one item of each kind. */

import { setPriceOverride } from '../../src/administration/prices/price-overrides.ts'
import { proposePriceBook } from '../../src/administration/prices/prices.ts'
import { planRerate, pricesNamed } from '../../src/administration/rerates/rerates.ts'
import { inviteUser } from '../../src/administration/users/invitations.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { createWebhook } from '../../src/administration/webhooks/webhooks.ts'
import { type DashboardHost, openDashboardHost } from './dashboard-host.ts'
import { type RouteExamples, routeExamples } from './route-examples.ts'
import { openScene, type Scene } from './scene.ts'

export type Furnished = {
  readonly room: DashboardHost
  readonly scene: Scene
  /** An existing value for each parameter in the table of routes. A progress page exists only while its work runs. */
  readonly examples: RouteExamples
  readonly baseUrl: string
  close(): Promise<void>
}

const actor = 'user:bob'
/** The actor that changes users. An actor that is not a user is not allowed to. */
const setUp = 'cli:setup'
const findings = (['ok', 'warning', 'fault'] as const).map((level, i) => ({
  level,
  about: `thing ${i}`,
  remedy: level === 'ok' ? null : 'Let NTP set the clock on every host.',
  figures: {},
  says: '/var/lib/enrichment/a-directory-with-a-very-long-name-indeed is not as it has to be',
}))
const dayMs = 86_400_000
const at = (days: number): string => new Date(Date.now() + days * dayMs).toISOString()

export const openFurnished = async ({
  days = 40,
  environment = {},
}: {
  days?: number
  environment?: Readonly<Record<string, string>>
} = {}): Promise<Furnished> => {
  const room = await openDashboardHost({ findings: async () => findings, environment })
  try {
    const scene = await openScene(room, { nowMs: Date.now(), days })
    await room.foundation.checkpoints.make()
    const examples = { ...routeExamples(scene), ...(await furnish(room, scene)) }
    const baseUrl = await room.host.listen({ host: '127.0.0.1', port: 0 })
    return { room, scene, examples, baseUrl, close: room.close }
  } catch (error) {
    await room.close()
    throw error
  }
}

/** Creates one of each item that the scene lacks. The keys of the result are the path segments before the ids. */
const furnish = async (
  { foundation, caughtUp }: DashboardHost,
  { organizationId }: Scene,
): Promise<RouteExamples> => {
  await proposePriceBook(foundation, {
    rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount: '0.75' } : rule)),
    effectiveFrom: at(1),
    reason: 'the contract of next year',
    actor,
  })
  const [from, to] = [at(-20), at(-1)]
  const book = await pricesNamed(foundation, { kind: 'proposal', number: 1 }, { from })
  const { proposed } = await planRerate(
    foundation,
    { book, from, to, organizationId: null, organizations: [organizationId], reason: 'too dear', actor },
    () => undefined,
  )
  await setPriceOverride(foundation, {
    organizationId,
    sku: 'ip_lookup',
    amount: 500_000n,
    reason: 'contract',
    effectiveFrom: new Date(Date.now() + 60_000).toISOString(),
    actor,
  })
  const { webhookId } = await createWebhook(foundation, {
    organizationId,
    url: new URL('https://hooks.example.com/ledger'),
    events: ['balance.low'],
    actor,
  })
  await createUser(foundation, { name: 'grace', role: 'partner', organizationId, actor: setUp })
  await inviteUser(foundation, { name: 'heidi', role: 'viewer', organizationId: null, actor: setUp })
  await caughtUp()
  const { rows } = await foundation.pool.query<{ grant_id: string }>(
    'select grant_id from account_lots where organization_id = $1 and remaining_micro > 0 limit 1',
    [organizationId],
  )
  const [lot] = rows
  if (lot === undefined) throw new Error('the scene has no lot')
  return { rerates: proposed.run, lots: lot.grant_id, webhooks: webhookId, users: 'grace' }
}
