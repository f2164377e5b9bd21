import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import Provider from 'oidc-provider'

/** An identity provider on loopback: node-oidc-provider, with its development sign-in pages. */

export type TestProvider = {
  readonly issuer: string
  /**
   * Signs a person in and consents, starting from the address to which the dashboard redirected the browser. Returns the address
   * of the redirect back to the dashboard.
   */
  signIn(authorizationUrl: string, account: string): Promise<URL>
  close(): Promise<void>
}

export type Claims = Readonly<Record<string, string | boolean>>

export const client = { clientId: 'dashboard', clientSecret: 'a secret of the client, kept by both' }

export const openTestProvider = async ({
  redirectUri,
  claimsOf,
  authMethod = 'client_secret_basic',
}: {
  redirectUri: string
  claimsOf: (account: string) => Claims
  authMethod?: 'client_secret_basic' | 'client_secret_post'
}): Promise<TestProvider> => {
  const server = createServer()
  const issuer = await listening(server)
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: client.clientId,
        client_secret: client.clientSecret,
        redirect_uris: [redirectUri],
        token_endpoint_auth_method: authMethod,
      },
    ],
    clientAuthMethods: [authMethod],
    cookies: { keys: ['a key of the test'] },
    claims: { email: ['email', 'email_verified'], profile: ['preferred_username'] },
    findAccount: (_, accountId) => ({
      accountId,
      claims: async () => ({ sub: accountId, ...claimsOf(accountId) }),
    }),
  })
  server.on('request', provider.callback())
  return {
    issuer,
    signIn: (authorizationUrl, account) => signInAt(authorizationUrl, { account, redirectUri }),
    close: () => closed(server),
  }
}

export const listening = async (server: Server): Promise<string> => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

export const closed = async (server: Server): Promise<void> => {
  server.closeAllConnections()
  await new Promise<void>((resolve) => server.close(() => resolve()))
}

const stepsMax = 12

const signInAt = async (
  start: string,
  { account, redirectUri }: { account: string; redirectUri: string },
): Promise<URL> => {
  const cookies = new Map<string, string>()
  let [url, form]: [URL, Record<string, string> | null] = [new URL(start), null]
  for (let i = 0; i < stepsMax; i++) {
    const answer = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(form === null ? {} : { method: 'POST', body: new URLSearchParams(form) }),
    })
    for (const cookie of answer.headers.getSetCookie()) {
      const [pair = ''] = cookie.split(';')
      cookies.set(pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1))
    }
    const page = await answer.text()
    const to = answer.headers.get('location')
    form = null
    if (to !== null) {
      url = new URL(to, url)
      if (url.href.startsWith(redirectUri)) return url
      continue
    }
    const prompt = /name="prompt" value="(\w+)"/.exec(page)?.[1]
    if (prompt === undefined) throw new Error(`the provider answered ${answer.status}: ${page.slice(0, 300)}`)
    form = prompt === 'login' ? { prompt, login: account, password: 'any' } : { prompt }
  }
  throw new Error('the provider redirects the browser in a loop')
}
