/** Signatures follow Standard Webhooks. They are checked against published values, not with the code that makes them. */
import { readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { describe, expect, test } from 'vitest'
import { webhookEvent } from '../../src/events/webhooks.ts'
import { testMessage } from '../../src/webhooks/outbox.ts'
import { secretText, signedHeaders } from '../../src/webhooks/signature.ts'

describe('a signature', () => {
  test('equals that of the reference implementations for their test message', () => {
    const headers = signedHeaders('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', {
      id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      atMs: 1_614_265_330_999,
      body: '{"test": 2432232314}',
    })
    expect(headers).toEqual({
      'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    })
  })
})

test('the guide for partners names every type of message, and no other', () => {
  const guide = readFileSync(new URL('../../src/guides/webhooks.md', import.meta.url), 'utf8')
  const named = [...guide.matchAll(/^\| `([^`]+)` \|/gm)].map(([, type]) => type)
  expect(named).toEqual([...webhookEvent.options, testMessage])
})

/** Runs the lines that partners copy from the guide. */
const published = async (): Promise<(secret: string, headers: object, body: string) => boolean> => {
  const guide = readFileSync(new URL('../../src/guides/webhooks.md', import.meta.url), 'utf8')
  const [, code = ''] = /```ts\n([\s\S]*?verifyWebhook[\s\S]*?)```/.exec(guide) ?? []
  const source = stripTypeScriptTypes(code)
  const module = await import(`data:text/javascript,${encodeURIComponent(source)}`)
  return module.verifyWebhook
}

describe('the verification code in the guide for partners', () => {
  const secret = secretText(Buffer.alloc(32, 7))
  const message = { id: 'msg_1', atMs: Date.now(), body: '{"type":"balance.low"}' }
  const headers = signedHeaders(secret, message)

  test('accepts our signatures', async () => {
    expect((await published())(secret, headers, message.body)).toBe(true)
  })

  test.each([
    ['another body', headers, '{"type":"balance.low" }', secret],
    ['another id', { ...headers, 'webhook-id': 'msg_2' }, message.body, secret],
    ['another secret', headers, message.body, secretText(Buffer.alloc(32, 8))],
    ['no signature', { ...headers, 'webhook-signature': '' }, message.body, secret],
    [
      'a message from ten minutes ago',
      signedHeaders(secret, { ...message, atMs: message.atMs - 600_000 }),
      message.body,
      secret,
    ],
  ])('refuses %s', async (_, given, body, key) => {
    expect((await published())(key, given, body)).toBe(false)
  })
})
