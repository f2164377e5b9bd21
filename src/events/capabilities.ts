import { z } from 'zod'
import { emailValidationFacts } from './email-validation.ts'
import { pixelFacts } from './pixel.ts'
import { keyedHmac } from './primitives.ts'
import { profileFacts } from './profile.ts'

/** A whoami call has no facts except that the key was used. */
const whoamiFacts = z.object({ kind: z.literal('whoami') })

/** The facts of an IP lookup. The address itself is never in the event log (decision 21). */
const ipLookupFacts = z.object({
  kind: z.literal('ip_lookup'),
  success: z.boolean(),
  country_code: z.string().length(2).nullable(),
  address_hmac: keyedHmac,
})

/** A partner read a part of its own account. */
const accountFacts = z.object({
  kind: z.literal('account'),
  view: z.enum(['balance', 'usage', 'call', 'receipt']),
})

/** A partner exported its own ledger. Both revisions are inclusive. If `through_revision` is before `from_revision`, the export was empty. */
const ledgerExportFacts = z.object({
  kind: z.literal('ledger_export'),
  from_revision: z.int().nonnegative(),
  through_revision: z.int().min(-1),
})

/** All calls that a partner can make, with their facts and the permission that each call needs. */
const callable = [
  { facts: emailValidationFacts, permission: 'email_validation' },
  { facts: ipLookupFacts, permission: 'ip_lookup' },
  { facts: profileFacts, permission: 'profnet_scraping' },
  { facts: pixelFacts, permission: 'pixel_control' },
  { facts: whoamiFacts, permission: null },
  { facts: accountFacts, permission: null },
  { facts: ledgerExportFacts, permission: 'ledger_read' },
] as const

export const capabilityFacts = callable.map(({ facts }) => facts)

/** The name of a capability is the kind of its facts. */
export const capability = z.enum(capabilityFacts.map(({ shape }) => shape.kind.value))
export type Capability = z.infer<typeof capability>

/** The permissions of a key (Spec §2.2, decision 6). Whoami and reading one's own account need none. */
export const permission = z.enum(callable.flatMap((one) => one.permission ?? []))
export type Permission = z.infer<typeof permission>
