import { emailValidation } from './email-validation/index.ts'
import { ipLookup } from './ip-lookup/index.ts'
import { pixel } from './pixel/index.ts'
import { profile } from './profile/index.ts'
import { whoami } from './whoami/index.ts'

/** Every capability of this service. */
export const capabilities = [ipLookup, emailValidation, profile, pixel, whoami] as const
