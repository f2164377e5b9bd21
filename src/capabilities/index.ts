import type { Declared } from '../administration/declare.ts'
import type { ServiceWords } from '../call/openapi.ts'
import { account } from './account/index.ts'
import { companyDeclarations } from './email-validation/company/commands.ts'
import { emailValidation } from './email-validation/index.ts'
import { listDeclarations } from './email-validation/lists/commands.ts'
import { geoDeclarations } from './ip-lookup/commands.ts'
import { ipLookup } from './ip-lookup/index.ts'
import { pixel } from './pixel/index.ts'
import { profileDeclarations } from './profile/commands.ts'
import { profile } from './profile/index.ts'
import { whoami } from './whoami/index.ts'

/**
 * Every capability of this service, in the order in which documents list them. To add one, write one file, one folder and three
 * lines; the compiler reports anything missing:
 *
 * 1. `events/<name>.ts`: the schema of its facts. A line in `events/capabilities.ts` adds these facts and the permission.
 * 2. A line in `billing/tariff.ts`: its rules, why each applies, and their prices until another price book is published.
 * 3. `capabilities/<name>/`: `contract`, `gather`, `decide`, `document`, and `index`, which exports one `Capability`. Add its name here.
 */
export const capabilities = [ipLookup, emailValidation, profile, pixel, whoami, account] as const

/** The capabilities' commands and queries for operators, in the order used by the help. */
export const capabilityDeclarations: readonly Declared[] = [
  ...geoDeclarations,
  ...companyDeclarations,
  ...listDeclarations,
  ...profileDeclarations,
]

export const serviceWords: ServiceWords = {
  summary: 'E-mail validation, IP lookups and profiles, each with a bill that you can verify.',
  requests: 'Every request has an API key and is about one e-mail address, one IP address or one profile.',
}

/** Exported because the dashboard and the command line also change pixel limits and blocks. */
export { createPixelControls, type PixelControls } from './pixel/controls.ts'
