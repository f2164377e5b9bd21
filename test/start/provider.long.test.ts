/** "doctor" checks the configured identity provider. */
import { createServer, type RequestListener } from 'node:http'
import { expect, test } from 'vitest'
import { lookAt } from '../../src/administration/checks/check.ts'
import { parseConfig } from '../../src/config.ts'
import { startChecks } from '../../src/start/doctor.ts'
import { client, closed, listening, openTestProvider } from '../support/identity-provider.ts'

const of = (issuer: string, more: Record<string, string> = {}) =>
  parseConfig({
    OIDC_ISSUER: issuer,
    OIDC_CLIENT_ID: client.clientId,
    OIDC_CLIENT_SECRET: client.clientSecret,
    ...more,
  })
const provider = startChecks.filter(({ name }) => name === 'identity provider')
const found = async (config: ReturnType<typeof parseConfig>): Promise<string[]> =>
  (await lookAt(provider, { config })).map(({ level, says }) => `${level}: ${says}`)

test('nothing is checked without a provider, or without the dashboard', async () => {
  expect(await found(parseConfig({}))).toEqual([])
  expect(await found(of('http://127.0.0.1:1', { ROLES: 'jobs' }))).toEqual([])
})

test('a provider that answers passes', async () => {
  const opened = await openTestProvider({ redirectUri: 'http://localhost/', claimsOf: () => ({}) })
  try {
    expect(await found(of(opened.issuer))).toEqual([`ok: the identity provider ${opened.issuer} answers`])
  } finally {
    await opened.close()
  }
})

const answering: RequestListener = (_, response) => response.writeHead(503).end()
const ofAnother: RequestListener = (_, response) =>
  response
    .writeHead(200, { 'content-type': 'application/json' })
    .end(JSON.stringify({ issuer: 'https://evil.example' }))
const round: RequestListener = ({ url }, response) => response.writeHead(302, { location: `${url}` }).end()

test.each([
  ['answers with an error', answering, /: it answered 503$/],
  ['names another issuer', ofAnother, /: its metadata could not be read \(.+\)$/],
  ['redirects endlessly', round, /: its metadata could not be read \(.+\)$/],
  ['never answers', () => undefined, /: (a request failed|its metadata could not be read) \(.+\)$/],
] as const)('one that %s is a warning, within ten seconds', async (_, listener, says) => {
  const server = createServer(listener)
  const issuer = await listening(server)
  try {
    const lines = await found(of(issuer))
    expect(lines).toEqual([expect.stringMatching(says)])
    expect(lines[0]).toMatch(/^warning: /)
    expect(lines[0]).not.toContain(client.clientSecret)
  } finally {
    await closed(server)
  }
})
