import type { Configuration, CustomFetchOptions } from 'openid-client'
import { isLoopbackName } from '../config/sign-in.ts'

/**
 * Signs people in with OpenID Connect (authorization code with PKCE, state and nonce). The provider only returns the person's name. The
 * rights are those of the user with this name. The library is loaded on first use.
 */

export type ProviderSettings = {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: string
  /** The claim that contains the user's name. */
  readonly nameClaim: string
}

/** The data of one sign-in while the person is at the provider. It is stored in the browser in a sealed cookie. */
export type Errand = {
  readonly state: string
  readonly nonce: string
  readonly verifier: string
  readonly redirectUri: string
}

type Named =
  | { readonly kind: 'named'; readonly name: string }
  /** `says` is for the log and must contain neither a secret nor text from outside. */
  | { readonly kind: 'refused'; readonly says: string }

export type IdentityProvider = {
  /** The issuer's host, for the sign-in page. */
  readonly label: string
  /** The URL to which the person must be redirected. Throws `ProviderAway`. */
  begin(redirectUri: string): Promise<{ readonly url: string; readonly errand: Errand }>
  /** Identifies the person whom the identity provider sent back with this query string. Throws `ProviderAway`. */
  finish(query: string, errand: Errand): Promise<Named>
}

/** Thrown if the provider cannot be reached, is too slow, or does not follow the protocol. */
export class ProviderAway extends Error {
  override name = 'ProviderAway'
}

/** The time limit of each request. A sign-in makes at most five requests. */
const requestMaxSeconds = 5
/** The metadata and keys of large providers take up about 20 kB. */
const answerMaxBytes = 512 * 1_024
/** The time for which metadata is cached. Changed endpoints of the provider are used after this time at the latest. */
const metadataMaxAgeMs = 60 * 60 * 1_000
const nameMax = 123

export const createIdentityProvider = (
  settings: ProviderSettings,
  monotonic: () => number = () => performance.now(),
): IdentityProvider => {
  const { issuer, nameClaim } = settings
  let known: { readonly configuration: Configuration; readonly atMs: number } | undefined
  let asked: Promise<Configuration> | undefined
  const configuration = async (): Promise<Configuration> => {
    if (known !== undefined && monotonic() - known.atMs < metadataMaxAgeMs) return known.configuration
    // Concurrent sign-ins share one request.
    asked ??= discover(settings)
      .then((found) => {
        known = { configuration: found, atMs: monotonic() }
        return found
      })
      .finally(() => {
        asked = undefined
      })
    return asked
  }
  return {
    label: new URL(issuer).host,
    begin: async (redirectUri) => {
      const client = await import('openid-client')
      const found = await configuration()
      const [verifier, state, nonce] = [
        client.randomPKCECodeVerifier(),
        client.randomState(),
        client.randomNonce(),
      ]
      const url = client.buildAuthorizationUrl(found, {
        redirect_uri: redirectUri,
        scope: 'openid email profile',
        state,
        nonce,
        code_challenge: await client.calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      })
      return { url: url.href, errand: { state, nonce, verifier, redirectUri } }
    },
    finish: async (query, errand) => {
      try {
        return nameIn(await claimsOf(await configuration(), { query, errand, nameClaim }), nameClaim)
      } catch (error) {
        const away = awayIn(error)
        if (away !== null) throw away
        return { kind: 'refused', says: refusalOf(error) }
      }
    },
  }
}

const discover = async ({ issuer, clientId, clientSecret }: ProviderSettings): Promise<Configuration> => {
  const client = await import('openid-client')
  const basic = client.ClientSecretBasic(clientSecret)
  const post = client.ClientSecretPost(clientSecret)
  try {
    return await client.discovery(
      new URL(issuer),
      clientId,
      undefined,
      (server, ...rest) => {
        const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic']
        const chosen = methods.includes('client_secret_basic') ? basic : post
        chosen(server, ...rest)
      },
      {
        timeout: requestMaxSeconds,
        [client.customFetch]: boundedFetch,
        // Checks the signature of the ID token even if the token comes directly from the provider.
        execute: [
          client.enableNonRepudiationChecks,
          ...(issuer.startsWith('http:') ? [client.allowInsecureRequests] : []),
        ],
      },
    )
  } catch (error) {
    throw awayIn(error) ?? new ProviderAway('its metadata could not be read', { cause: error })
  }
}

/** The claims of the ID token, or those of the userinfo endpoint if the token lacks the user's name. */
const claimsOf = async (
  configuration: Configuration,
  { query, errand, nameClaim }: { query: string; errand: Errand; nameClaim: string },
): Promise<Readonly<Record<string, unknown>>> => {
  const client = await import('openid-client')
  const back = new URL(errand.redirectUri)
  back.search = query
  const tokens = await client.authorizationCodeGrant(configuration, back, {
    pkceCodeVerifier: errand.verifier,
    expectedState: errand.state,
    expectedNonce: errand.nonce,
    idTokenExpected: true,
  })
  const claims = tokens.claims()
  if (claims === undefined) return {}
  if (claims[nameClaim] !== undefined || configuration.serverMetadata().userinfo_endpoint === undefined)
    return claims
  return client.fetchUserInfo(configuration, tokens.access_token, claims.sub)
}

/** Refuses an unverified e-mail address, because a person can enter someone else's address at the provider. */
const nameIn = (claims: Readonly<Record<string, unknown>>, nameClaim: string): Named => {
  const name = claims[nameClaim]
  if (typeof name !== 'string' || name === '' || name.length > nameMax)
    return { kind: 'refused', says: `the claim ${nameClaim} is not a name` }
  const verified = claims.email_verified
  if (nameClaim === 'email' && verified !== undefined && verified !== true && verified !== 'true')
    return { kind: 'refused', says: 'the provider did not verify the address' }
  return { kind: 'named', name }
}

/** Makes one request to the provider, with a maximum answer size. Throws `ProviderAway` if it fails. */
const boundedFetch = async (url: string, options: CustomFetchOptions): Promise<Response> => {
  const { protocol, hostname } = new URL(url)
  if (protocol !== 'https:' && !isLoopbackName(hostname))
    throw new ProviderAway('it names an address without TLS')
  try {
    const { body, signal, ...rest } = options
    const answer = await fetch(url, { ...rest, body: body ?? null, signal: signal ?? null })
    if (answer.status >= 500) throw new ProviderAway(`it answered ${answer.status}`)
    const text = await textOf(answer)
    return new Response(text === '' ? null : text, { status: answer.status, headers: answer.headers })
  } catch (error) {
    throw error instanceof ProviderAway ? error : new ProviderAway('a request failed', { cause: error })
  }
}

const textOf = async (answer: Response): Promise<string> => {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of answer.body ?? []) {
    bytes += chunk.byteLength
    if (bytes > answerMaxBytes) throw new ProviderAway('its answer is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

const causesMax = 8

const awayIn = (error: unknown): ProviderAway | null => {
  let one = error
  for (let i = 0; i < causesMax && one instanceof Error; i++) {
    if (one instanceof ProviderAway) return one
    one = one.cause
  }
  return null
}

/** The error code of the library or of the protocol. */
const refusalOf = (error: unknown): string => {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' && /^[A-Z_]{1,60}$/.test(code) ? code : 'not an answer to this sign-in'
}
