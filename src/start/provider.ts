import { type Check, ok, reasonOf, warning } from '../administration/doctor/finding.ts'
import type { Config } from '../config.ts'
import { createIdentityProvider, type ProviderSettings } from '../dashboard/identity-provider.ts'

/** The provider of identities that people may sign in with. Null: there is none. */
export const providerOf = ({
  OIDC_ISSUER: issuer,
  OIDC_CLIENT_ID: clientId,
  OIDC_CLIENT_SECRET: clientSecret,
  OIDC_NAME_CLAIM: nameClaim,
}: Config): ProviderSettings | null =>
  issuer === undefined || clientId === undefined || clientSecret === undefined
    ? null
    : { issuer, clientId, clientSecret, nameClaim }

/** Never asked for more than its metadata. */
const nowhere = 'https://localhost/'

/** Whether the provider answers as one, within the seconds that a sign-in gives it. */
export const providerCheck = (config: Config): Check => ({
  about: 'provider of identities',
  look: async () => {
    const settings = config.ROLES.includes('dashboard') ? providerOf(config) : null
    if (settings === null) return []
    const { issuer } = settings
    try {
      await createIdentityProvider(settings).begin(nowhere)
      return ok(`${issuer} answers as a provider`)
    } catch (error) {
      const cause = error instanceof Error && error.cause !== undefined ? error.cause : null
      return warning(
        `${issuer}: ${reasonOf(error)}${cause === null ? '' : ` (${reasonOf(cause)})`}`,
        'See OIDC_ISSUER, and that this host can reach it. Until then people sign in with their passwords.',
      )
    }
  },
})
