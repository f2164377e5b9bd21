import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { signedHeaders } from '../../src/webhooks/signature.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cli, cliJson } from '../support/service.ts'

/** An operator manages webhooks on the command line. The receiver is on loopback, which `EGRESS_ALLOW` permits. */

type Created = { readonly webhook_id: string; readonly secret: string }

let database: TestDatabase
let environment: Record<string, string>
let receiver: Server
let base: string
let organization: string
const received: { readonly headers: IncomingHttpHeaders; readonly body: string }[] = []

beforeAll(async () => {
  receiver = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    received.push({ headers: request.headers, body: Buffer.concat(chunks).toString() })
    response.writeHead(200).end('thank you')
  })
  receiver.listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  base = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`
  database = await testDatabase()
  environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    EGRESS_ALLOW: '127.0.0.1',
  }
  const made = await cliJson<{ organization_id: string }>(['org', 'create', 'Acme'], environment)
  organization = made.organization_id
})

afterAll(async () => {
  receiver?.closeAllConnections()
  receiver?.close()
  await database?.drop()
})

test.each([
  ['--url: it must begin with https://', ['<org>', 'http://127.0.0.1/', 'checkpoint'], '127.0.0.1'],
  [
    '--url: 127.0.0.1 is not a public Internet address',
    ['<org>', 'https://127.0.0.1/', 'checkpoint'],
    '127.0.0.1',
  ],
  [
    '--url: 10.0.0.1 is not a public Internet address',
    ['<org>', 'https://10.0.0.1/', 'checkpoint'],
    '127.0.0.1',
  ],
  ['--events: there is no event "balance"', ['<org>', 'https://a.test/', 'balance'], ''],
  [
    '--events: balance.low concern one organization',
    ['--url', 'https://a.test/', '--events', 'balance.low'],
    '',
  ],
])(
  'an invalid webhook is refused with a one-sentence reason: %s',
  async (sentence, args, EGRESS_ALLOW) => {
    const given = args.map((arg) => (arg === '<org>' ? organization : arg))
    const { code, out, err } = await cli(['webhook', 'create', ...given], { ...environment, EGRESS_ALLOW })
    expect(err).toContain(sentence)
    expect({ code, out }).toEqual({ code: 2, out: '' })
  },
  60_000,
)

test('a webhook is created, tested, listed and deleted; its secret is shown once', async () => {
  const { webhook_id, secret } = await cliJson<Created>(
    ['webhook', 'create', '--url', `${base}/heard`, '--events', 'checkpoint'],
    environment,
  )
  const tried = await cli(['webhook', 'test', webhook_id], environment)
  expect(tried.code).toBe(0)
  expect(tried.out).toMatch(/\b200\b/)
  expect(tried.out).not.toContain('thank you')
  const [message] = received
  const id = String(message?.headers['webhook-id'])
  const atMs = Number(message?.headers['webhook-timestamp']) * 1_000
  expect(message?.headers).toMatchObject(signedHeaders(secret, { id, atMs, body: message?.body ?? '' }))
  const listed = await cli(['webhook', 'list', '--json'], environment)
  expect(JSON.parse(listed.out)).toMatchObject([
    { webhook_id, organization_id: null, events: ['checkpoint'], pending: 0 },
  ])
  expect(listed.out).not.toContain('whsec_')
  const sent = await cliJson(['webhook', 'deliveries', webhook_id], environment)
  expect(sent).toMatchObject([{ event: 'webhook.test', state: 'delivered', attempts: 1 }])
  expect((await cli(['webhook', 'delete', webhook_id, '--yes'], environment)).code).toBe(0)
  const again = await cli(['webhook', 'delete', webhook_id, '--yes'], environment)
  expect(again).toMatchObject({ code: 1 })
  expect(again.err).toContain(`there is no webhook ${webhook_id}`)
  const shown = await cliJson<{ type: string; data: { host?: string } }[]>(
    ['event-log', 'show', 'operator'],
    environment,
  )
  const own = shown.filter(({ type }) => type.startsWith('Webhook'))
  expect(own.map(({ type }) => type)).toEqual(['WebhookCreated', 'WebhookDeleted'])
  expect(own[0]?.data.host).toBe(new URL(base).host)
})
