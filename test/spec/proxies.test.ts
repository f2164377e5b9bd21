/** Behind a proxy, a key's allow-list is compared with the client's address. Connections come from several loopback addresses. */
import { request } from 'node:http'
import { describe, expect, test } from 'vitest'
import { houseForFile, places } from '../support/house.ts'

const proxies = '127.0.0.9, 127.3.0.0/24,2001:db8:7::/48'
const client = '203.0.113.7'

const house = await houseForFile({ environment: { TRUSTED_PROXIES: proxies } })
const own = await house.partner({ allowedCidrs: [`${client}/32`, '2001:db8:1::/64'] })

type Said = { status: number; code: unknown; address: unknown }

/** Sends one lookup over a connection from `from`. A header with two values is sent as two lines. */
const lookUp = (
  from: string,
  forwarded: string | string[] | undefined,
  { base = house.apiUrl } = {},
): Promise<Said> =>
  new Promise((resolve, reject) => {
    const call = request(
      `${base}/v1/ip/lookup`,
      {
        method: 'POST',
        localAddress: from,
        headers: {
          'content-type': 'application/json',
          'x-api-key': own.apiKey,
          ...(forwarded === undefined ? {} : { 'x-forwarded-for': forwarded }),
        },
      },
      (response) => {
        let text = ''
        response.on('data', (chunk) => {
          text += chunk
        })
        response.on('end', () => {
          const body = JSON.parse(text)
          resolve({ status: response.statusCode ?? 0, code: body.code, address: body.details?.address })
        })
      },
    )
    call.on('error', reject)
    call.end(JSON.stringify({ ip: places.london }))
  })

const letIn = { status: 200, code: undefined, address: undefined }
const refusedAs = (address: string) => ({ status: 403, code: 'AUTH_003', address })

describe('the header of a trusted proxy counts', () => {
  test.each<[string, string, string | string[]]>([
    ['the client of one proxy', '127.0.0.9', client],
    [
      'the address seen by the proxy, not the one claimed to its left',
      '127.0.0.9',
      `198.51.100.1, ${client}`,
    ],
    ['three proxies, one of them IPv6', '127.0.0.9', `${client}, 2001:db8:7::1, 127.3.0.5`],
    ['two header lines', '127.0.0.9', [client, '127.3.0.5']],
    ['an IPv6 client in brackets, with its port', '127.0.0.9', '[2001:db8:1::99]:443'],
  ])('%s', async (_, from, forwarded) => {
    expect(await lookUp(from, forwarded)).toEqual(letIn)
  })

  test.each<[string, string, string | undefined, string]>([
    ['a client that claims an address itself', '127.0.0.9', `${client}, 203.0.113.8`, '203.0.113.8'],
    ['a hop that is not one of our proxies', '127.0.0.9', `${client}, 127.4.0.5, 127.3.0.5`, '127.4.0.5'],
    ['a proxy without a header', '127.0.0.9', undefined, '127.0.0.9'],
    ['a client unknown to the proxy', '127.0.0.9', 'unknown', 'unknown'],
    ['a hop that is not an address', '127.0.0.9', `${client}, unix:, 127.3.0.5`, 'unknown'],
  ])('%s is refused', async (_, from, forwarded, address) => {
    expect(await lookUp(from, forwarded)).toEqual(refusedAs(address))
  })
})

test.each(['127.0.0.1', '127.0.0.8', '127.3.1.1'])(
  'the headers of other addresses have no effect: %s is %s',
  async (peer) => {
    for (const said of [client, `${client}, 127.0.0.9`, [client, '127.3.0.5']])
      expect(await lookUp(peer, said)).toEqual(refusedAs(peer))
  },
)

test('a proxy on a dual-stack socket is recognized by its IPv4 address', async () => {
  const dual = await house.another({ config: { HOST: '::ffff:127.0.0.1' } })
  try {
    const base = String(dual.apiUrl)
    expect(await lookUp('::ffff:127.0.0.9', client, { base })).toEqual(letIn)
    expect(await lookUp('::ffff:127.0.0.8', client, { base })).toEqual(refusedAs('127.0.0.8'))
  } finally {
    await dual.close()
  }
})

test('proxies do not make the dashboard host trust other addresses', async () => {
  const answer = await fetch(`${house.dashboardUrl}/whoami`, {
    headers: { 'x-api-key': own.apiKey, 'x-forwarded-for': client },
  })
  expect(await answer.json()).toMatchObject({ code: 'AUTH_003', details: { address: '127.0.0.1' } })
})
