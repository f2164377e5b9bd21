import { z } from 'zod'
import { accountFacts, ledgerExportFacts } from './account.ts'
import { emailValidationFacts } from './email-validation.ts'
import { ipLookupFacts } from './ip-lookup.ts'
import { pixelFacts } from './pixel.ts'
import { profileFacts } from './profile.ts'
import { whoamiFacts } from './whoami.ts'

/** What a partner can call: what such a call establishes, and what its key must be allowed. A new capability adds a line. */
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

/** The kind of its facts is also the name under which a capability's calls are counted and priced. */
export const capability = z.enum(capabilityFacts.map(({ shape }) => shape.kind.value))
export type Capability = z.infer<typeof capability>

/** What a key may be allowed to do (Spec §2.2, decision 6). Whoami and a look at one's own account need none. */
export const permission = z.enum(callable.flatMap((one) => one.permission ?? []))
export type Permission = z.infer<typeof permission>
