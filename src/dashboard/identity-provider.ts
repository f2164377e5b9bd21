import type { Configuration, CustomFetchOptions } from 'openid-client'
import { isLoopbackName } from '../config/sign-in.ts'

/**
 * Signing in with a provider of identities: OpenID Connect, authorization code with PKCE, state and nonce. The provider says who
 * the person is, and nothing else: what that person may do is what the user of that name may do.
 *
 * Loaded when it is first needed. Every request to the provider has a deadline and a largest answer.
 */

export type ProviderSettings = {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: string
  /** The claim that is the name of a user. */
  readonly nameClaim: string
}

/** What one sign-in has to remember until the person is back; kept sealed, in that person's browser. */
export type Errand = {
  readonly state: string
  readonly nonce: string
  readonly verifier: string
  readonly redirectUri: string
}

type Named =
  | { readonly kind: 'named'; readonly name: string }
  /** `says` is for the log: it holds no secret and nothing that a stranger wrote. */
  | { readonly kind: 'refused'; readonly says: string }

export type IdentityProvider = {
  /** For the sign-in page: the host of the issuer. */
  readonly label: string
  /** Where to send the person. Throws `ProviderAway`. */
  begin(redirectUri: string): Promise<{ readonly url: string; readonly errand: Errand }>
  /** Who came back with this query. Throws `ProviderAway`. */
  finish(query: string, errand: Errand): Promise<Named>
}

/** It cannot be reached, is late, or does not answer as a provider. */
export class ProviderAway extends Error {
  override name = 'ProviderAway'
}

/** Of one request; a sign-in makes at most five: metadata, token, keys, and the person's claims. */
const requestMaxSeconds = 5
/** Metadata and keys of large providers have some 20 kB. */
const answerMaxBytes = 512 * 1_024
/** A provider that changes its endpoints is followed within the hour. */
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
    // However many begin at once, it is asked once.
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
        // The signature of what says who it is counts, whatever brought it.
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

/** Of the ID token, and where it does not have the claim, of what the provider says of the person besides. */
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

/** Pure. An address that the provider did not verify may be typed by anyone. */
const nameIn = (claims: Readonly<Record<string, unknown>>, nameClaim: string): Named => {
  const name = claims[nameClaim]
  if (typeof name !== 'string' || name === '' || name.length > nameMax)
    return { kind: 'refused', says: `the claim ${nameClaim} is not a name` }
  const verified = claims.email_verified
  if (nameClaim === 'email' && verified !== undefined && verified !== true && verified !== 'true')
    return { kind: 'refused', says: 'the provider did not verify the address' }
  return { kind: 'named', name }
}

/** One request: no redirection, an end, and a largest answer. Throws `ProviderAway` for what fails or is no answer of a provider. */
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
    if (bytes > answerMaxBytes) throw new ProviderAway('its answer has no end')
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

/** The code that the library or the protocol has for it. */
const refusalOf = (error: unknown): string => {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' && /^[A-Z_]{1,60}$/.test(code) ? code : 'not an answer to this sign-in'
}
