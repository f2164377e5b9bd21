import type { Config } from '../config.ts'
import type { ProviderSettings } from '../dashboard/identity-provider.ts'

/** Returns the settings of the identity provider for sign-ins, or null if none is configured. */
export const providerOf = ({
  OIDC_ISSUER: issuer,
  OIDC_CLIENT_ID: clientId,
  OIDC_CLIENT_SECRET: clientSecret,
  OIDC_NAME_CLAIM: nameClaim,
}: Config): ProviderSettings | null =>
  issuer === undefined || clientId === undefined || clientSecret === undefined
    ? null
    : { issuer, clientId, clientSecret, nameClaim }
