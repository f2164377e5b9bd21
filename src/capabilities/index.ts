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
 * Every capability of this service, in the order in which people read about them. To add one, write two new places and three lines;
 * the compiler reports anything missing:
 *
 * 1. `events/<name>.ts`: the schema of its facts; and a line in `events/capabilities.ts`: these facts, and the permission.
 * 2. A line in `billing/tariff.ts`: its rules, why each applies, and their prices until another price book is published.
 * 3. `capabilities/<name>/`: `contract`, `gather`, `decide`, `document`, and `index`, which exports one `Capability`; and its name here.
 */
export const capabilities = [ipLookup, emailValidation, profile, pixel, whoami, account] as const

/** Their commands and queries for operators, in the order of the help. */
export const capabilityDeclarations: readonly Declared[] = [
  ...geoDeclarations,
  ...companyDeclarations,
  ...listDeclarations,
  ...profileDeclarations,
]

/** What the OpenAPI document says about all of them. */
export const serviceWords: ServiceWords = {
  summary: 'E-mail validations, IP lookups and profiles, each with a bill that can be proved.',
  requests:
    'Every request carries an API key and asks for one e-mail address, one IP address or one profile.',
}

/** The dashboard and the command line change pixel limits and blocks too. */
export { type CountedRules, createPixelControls, type PixelControls } from './pixel/controls.ts'
