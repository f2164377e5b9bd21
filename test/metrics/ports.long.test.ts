/** Every process has a separate metrics port, and uses a free one if the default is taken. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterAll, describe, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { type App, startApp } from '../../src/start/app.ts'
import { sendRaw, writeCityFile } from '../support/house.ts'
import { testDatabase } from '../support/postgres.ts'

const secretKey = 'a secret of at least thirty-two characters'
const defaultPort = 9464
const servers: Server[] = []
const logged: string[] = []
const logger = pino({ level: 'info' }, { write: (line: string) => void logged.push(line) })

const host = '127.0.64.9'

/** Listens on a port until the test ends. 0 means any port. */
const take = async (port: number): Promise<number> => {
  if (servers.some((server) => (server.address() as AddressInfo).port === port)) return port
  const server = createServer()
  server.listen(port, host)
  await once(server, 'listening')
  servers.push(server)
  return (server.address() as AddressInfo).port
}

const database = await testDatabase()
const directory = await mkdtemp(join(tmpdir(), 'ports-'))
const cityFile = await writeCityFile(directory)
const configOf = (environment: Record<string, string>) =>
  parseConfig({
    DATABASE_URL: database.url,
    SECRET_KEY: secretKey,
    DATA_DIR: directory,
    GEOIP_CITY_DB: cityFile,
    KEY_DIR: database.keyDir,
    API_PORT: '0',
    DASHBOARD_PORT: '0',
    ...environment,
  })

const foundation = await openFoundation(configOf({}), { logger })
afterAll(async () => {
  for (const server of servers) {
    server.close()
    await once(server, 'close')
  }
  await foundation.close()
  await database.drop()
  await rm(directory, { recursive: true, force: true })
})

const start = (environment: Record<string, string>): Promise<App> =>
  startApp(foundation, configOf(environment), logger)

test('no answer of that port may be cached, or interpreted as another type', async () => {
  const app = await start({ ROLES: 'jobs', METRICS_PORT: '0' })
  try {
    for (const bytes of ['GET /metrics HTTP/1.1', 'GET /nothing HTTP/1.1', 'POST /livez HTTP/1.1', 'hello']) {
      const [answer] = await sendRaw(
        String(app.metricsUrl),
        `${bytes}\r\nHost: x\r\nConnection: close\r\n\r\n`,
      )
      expect({
        bytes,
        kept: answer?.headers.get('cache-control'),
        sniffed: answer?.headers.get('x-content-type-options'),
      }).toEqual({ bytes, kept: 'no-store', sniffed: 'nosniff' })
    }
  } finally {
    await app.close()
  }
})

describe('the port', () => {
  test('if the default port is taken, another port is used, and that is logged', async () => {
    await take(defaultPort)
    logged.length = 0
    const [one, other] = [
      await start({ ROLES: 'jobs', METRICS_HOST: host }),
      await start({ ROLES: 'dashboard', METRICS_HOST: host }),
    ]
    try {
      const ports = [one, other].map(({ metricsUrl }) => new URL(metricsUrl ?? '').port)
      expect(ports).not.toContain(String(defaultPort))
      expect(new Set(ports).size).toBe(2)
      expect(logged.filter((line) => line.includes('the default port is taken'))).toHaveLength(2)
      for (const { metricsUrl } of [one, other]) {
        expect(metricsUrl).toMatch(/^http:\/\/127\.0\.64\.9:\d+$/)
        expect((await fetch(`${metricsUrl}/livez`)).status).toBe(200)
      }
    } finally {
      await one.close()
      await other.close()
    }
  })

  test.each(['a port', 'the default port itself'])(
    '%s that was set and is taken stops the start',
    async (which) => {
      const port = await take(which === 'a port' ? 0 : defaultPort)
      const started = start({ ROLES: 'jobs', METRICS_HOST: host, METRICS_PORT: String(port) })
      await expect(started).rejects.toThrow(ConfigError)
      await expect(started).rejects.toThrow(`METRICS_PORT: port ${port} on ${host} is taken.`)
    },
  )

  test('a configured port is used, on the configured address', async () => {
    const app = await start({ ROLES: 'jobs', METRICS_PORT: '0', METRICS_HOST: '127.0.0.2' })
    try {
      expect(app.metricsUrl).toMatch(/^http:\/\/127\.0\.0\.2:\d+$/)
      expect((await fetch(`${app.metricsUrl}/metrics`)).status).toBe(200)
    } finally {
      await app.close()
    }
  })
})
