/** HTTPS served directly, with TLS_CERT and TLS_KEY. */

import type { Server } from 'node:http'
import { get } from 'node:https'
import { connect as connectPlainly } from 'node:net'
import { tmpdir } from 'node:os'
import { connect } from 'node:tls'
import pino from 'pino'
import { afterAll, describe, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'
import { readTls, serveRenewed } from '../../src/start/tls.ts'
import { pinnedCertificate } from '../egress/pinned-certificate.ts'
import { certificateFiles, renewedCertificate } from '../support/certificate.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { openHouse } from '../support/house.ts'
import { eventually } from '../support/service.ts'

const files = await certificateFiles(pinnedCertificate)
const house = await openHouse({ environment: files.variables })
afterAll(async () => {
  await house.close()
  await files.remove()
})

type Answer = { status: number; cookies: string[]; text: string }

/** Sends a request. The client trusts only the certificate `ca`, under its name. */
const ask = (url: string, ca = pinnedCertificate.cert): Promise<Answer> =>
  new Promise((resolve, reject) => {
    get(url, { ca, servername: 'pinned.test', agent: false }, (response) => {
      let text = ''
      response.on('data', (chunk) => {
        text += chunk
      })
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, cookies: response.headers['set-cookie'] ?? [], text }),
      )
    }).on('error', reject)
  })

test('both hosts answer over HTTPS, and report that', async () => {
  expect(house.apiUrl).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/)
  expect(house.dashboardUrl).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/)
  for (const [url, status] of [
    [`${house.apiUrl}/livez`, 200],
    [`${house.dashboardUrl}/livez`, 200],
    [`${house.dashboardUrl}/whoami`, 401],
  ] as const)
    expect((await ask(url)).status).toBe(status)
})

test('the pages treat the connection as HTTPS without a proxy', async () => {
  const { status, cookies } = await ask(`${house.dashboardUrl}/login`)
  expect(status).toBe(200)
  expect(cookies).toHaveLength(1)
  expect(cookies[0]).toMatch(/^__Host-dashboard_form=[^;]+; Path=\/; HttpOnly; Secure; SameSite=Strict$/)
})

test('plain HTTP gets no answer; a request without a Host gets the same answer as without TLS', async () => {
  const port = Number(new URL(house.apiUrl).port)
  const said = await new Promise<string>((resolve) => {
    let text = ''
    const socket = connectPlainly(port, '127.0.0.1', () =>
      socket.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n'),
    )
    socket.on('data', (chunk) => {
      text += chunk
    })
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(text))
  })
  expect(said).not.toContain('live')
  const answer = await new Promise<string>((resolve, reject) => {
    let text = ''
    const socket = connect({ port, ca: pinnedCertificate.cert, servername: 'pinned.test' }, () =>
      socket.write('GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n'),
    )
    socket.on('data', (chunk) => {
      text += chunk
    })
    socket.on('error', reject)
    socket.on('close', () => resolve(text))
  })
  expect(answer).toMatch(/^HTTP\/1\.1 400 [\s\S]*REQ_001/)
})

test('a call is answered even if the client ends its side of the connection after sending it', async () => {
  const { apiKey } = await house.partner()
  const body = '{"ip":"10.0.0.1"}'
  const head = `POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nx-api-key: ${apiKey}\r\nContent-Type: application/json`
  const answer = await new Promise<string>((resolve, reject) => {
    let text = ''
    // The types of `connect` lack `allowHalfOpen`.
    const options = {
      port: Number(new URL(house.apiUrl).port),
      ca: pinnedCertificate.cert,
      servername: 'pinned.test',
      allowHalfOpen: true,
    }
    const socket = connect(options, () =>
      socket.end(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`),
    )
    socket.on('data', (chunk) => {
      text += chunk
    })
    socket.on('error', reject)
    socket.on('close', () => resolve(text))
  })
  expect(answer).toMatch(/^HTTP\/1\.1 200 /)
})

describe('a renewed certificate', () => {
  test('is served from the next connection on; a half-written certificate is not served, and calls continue', async () => {
    const tls = await readTls(parseConfig({ ...files.variables }))
    if (tls === null) throw new Error('there is no certificate')
    const contexts: { cert: string }[] = []
    const servers = [{ setSecureContext: (context: { cert: string }) => void contexts.push(context) }]
    const written: string[] = []
    const renewed = serveRenewed(
      parseConfig({ ...files.variables }),
      {
        tls,
        servers: servers as unknown as Server[],
        logger: pino({}, { write: (line: string) => void written.push(line) }),
      },
      20,
    )
    try {
      await files.replace({ cert: renewedCertificate.cert })
      await eventually(async () => (written.length > 0 ? true : undefined))
      expect(written[0]).toContain('the new certificate files cannot be used')
      expect(contexts).toEqual([])
      await files.replace({ key: renewedCertificate.key })
      await eventually(async () => (contexts.length > 0 ? true : undefined))
      expect(String(contexts[0]?.cert)).toBe(renewedCertificate.cert)
      expect(written.map((line) => JSON.parse(line).level)).toEqual([50, 30])
    } finally {
      renewed.end()
      await files.replace(pinnedCertificate)
    }
  })
})

test('is served immediately after a reload, over real connections', { skip: !exhaustive }, async () => {
  await files.replace(renewedCertificate)
  try {
    await house.app.reload()
    for (const url of [house.apiUrl, house.dashboardUrl]) {
      expect((await ask(`${url}/livez`, renewedCertificate.cert)).status).toBe(200)
      await expect(ask(`${url}/livez`)).rejects.toThrow()
    }
  } finally {
    await files.replace(pinnedCertificate)
    await house.app.reload()
  }
})

describe('a start is refused, naming the variable,', () => {
  const refusal = async (variables: Record<string, string>): Promise<string> => {
    try {
      await readTls(parseConfig(variables))
      return 'it started'
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      return error.message
    }
  }

  test('if one of the two is missing', async () => {
    const { TLS_CERT, TLS_KEY } = files.variables
    expect(await refusal({ TLS_CERT })).toMatch(/^TLS_KEY: not set, but TLS_CERT is/)
    expect(await refusal({ TLS_KEY })).toMatch(/^TLS_CERT: not set, but TLS_KEY is/)
  })

  test('if a file is missing, is something else, or does not match the other', async () => {
    const { TLS_CERT, TLS_KEY } = files.variables
    const other = await certificateFiles(renewedCertificate)
    try {
      expect(await refusal({ TLS_CERT: `${TLS_CERT}.none`, TLS_KEY })).toMatch(
        /^TLS_CERT: .* does not exist$/,
      )
      expect(await refusal({ TLS_CERT, TLS_KEY: tmpdir() })).toMatch(
        /^TLS_KEY: .* cannot be read \(EISDIR\)$/,
      )
      expect(await refusal({ TLS_CERT: TLS_KEY, TLS_KEY })).toMatch(/^TLS_CERT: .* is not a PEM certificate/)
      expect(await refusal({ TLS_CERT, TLS_KEY: TLS_CERT })).toMatch(/^TLS_KEY: .* is not the private key of/)
      expect(await refusal({ TLS_CERT, TLS_KEY: other.variables.TLS_KEY })).toMatch(
        /^TLS_KEY: .* is not the private key of/,
      )
    } finally {
      await other.remove()
    }
  })

  test.each(['0.0.0.0/0', '::/0', '10.0.0.4/', 'proxy.internal', '10.0.0.4/33'])(
    'TRUSTED_PROXIES=%s',
    async (value) => {
      expect(await refusal({ TRUSTED_PROXIES: value })).toMatch(/^TRUSTED_PROXIES: addresses or CIDR blocks/)
    },
  )
})
