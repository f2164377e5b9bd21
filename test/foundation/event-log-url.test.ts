import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EventStoreDBClient, jsonEvent } from '@eventstore/db-client'
import pino from 'pino'
import { afterAll, describe, expect, test } from 'vitest'
import { parseConfig } from '../../src/config.ts'
import { checkUrl, withResolvedHosts } from '../../src/event-log/eventstoredb/client.ts'
import { prepareEventStoreDb } from '../../src/event-log/eventstoredb/prepare.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { pinnedCertificate } from '../egress/pinned-certificate.ts'
import { doubleCertificate } from '../support/eventstore-certificate.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import { testDatabase } from '../support/postgres.ts'

/**
 * A failed start gives the reason in one line, with EVENT_LOG_URL, the error of the server or of TLS, and the remedy. The double
 * of the server speaks TLS, requires a user and checks the rights in `$settings`, as far as we know the real server does.
 */

const password = 'c0rrect/h@rse'
const secretKey = 'a secret of the test, long enough to be one'

const dir = await mkdtemp(join(tmpdir(), 'event-log-url-'))
await writeFile(join(dir, 'ca.crt'), doubleCertificate.cert)
const ca = `tlsCAFile=${join(dir, 'ca.crt')}`
const double = await startEventStoreDouble({ secured: { adminPassword: password } })
const plain = await startEventStoreDouble({})
const database = await testDatabase()

afterAll(async () => {
  await double.close()
  await plain.close()
  await database.drop()
  await rm(dir, { recursive: true, force: true })
})

const urlOf = (options: string, { user = 'admin', word = password, host = '127.0.0.1' } = {}): string =>
  `esdb://${user}:${encodeURIComponent(word)}@${host}:${double.port}?${options}`

const startOn = async (eventLogUrl: string): Promise<string> => {
  const config = parseConfig({
    DATABASE_URL: database.url,
    SECRET_KEY: secretKey,
    EVENT_LOG_URL: eventLogUrl,
  })
  try {
    const foundation = await openFoundation(config, { logger: pino({ level: 'silent' }) })
    await foundation.close()
    return 'started'
  } catch (error) {
    if (!(error instanceof Error)) throw error
    expect(error.name, error.stack).toBe('ConfigError')
    expect(error.message).not.toContain('\n')
    expect(error.message).not.toContain(password)
    expect(error.message).not.toContain(encodeURIComponent(password))
    return error.message
  }
}

/** Sets the rights of each user on the double, as an administrator does. */
const settings = async (acls: object): Promise<void> => {
  const client = EventStoreDBClient.connectionString(urlOf(ca))
  await client.appendToStream('$settings', jsonEvent({ type: 'update-default-acl', data: { ...acls } }))
  await client.dispose()
}

describe('a start fails on an event store', () => {
  test('whose certificate is from an unknown CA', async () => {
    expect(await startOn(urlOf('tls=true'))).toMatch(
      /^EVENT_LOG_URL: EventStoreDB at esdb:\/\/\*\*\*@127\.0\.0\.1:\d+ cannot be reached \(14 UNAVAILABLE: .*self-signed certificate.*tlsCAFile=/,
    )
  })

  test('whose certificate is for another name', async () => {
    const other = await startEventStoreDouble({
      secured: { adminPassword: password, certificate: pinnedCertificate },
    })
    await writeFile(join(dir, 'other.crt'), pinnedCertificate.cert)
    expect(await startOn(`esdb://127.0.0.1:${other.port}?tlsCAFile=${join(dir, 'other.crt')}`)).toMatch(
      /cannot be reached \(.*does not match certificate's altnames.*\)\. Start it, or correct the connection string/,
    )
    await other.close()
  })

  test('with a wrong password, and without one', async () => {
    expect(await startOn(urlOf(ca, { word: 'sesame' }))).toMatch(
      /refuses the user or the password \(16 UNAUTHENTICATED: .*\)\. Correct them .*percent-encoded\.$/,
    )
    expect(await startOn(`esdb://127.0.0.1:${double.port}?${ca}`)).toMatch(/\(16 UNAUTHENTICATED/)
  })

  test('as a user that may not read everything, and as one that may not write', async () => {
    // The installation is already running, so the start must not write anything.
    expect(await startOn(urlOf(ca))).toBe('started')
    await prepareEventStoreDb({
      adminUrl: urlOf(ca),
      user: 'ledger',
      password,
      shared: false,
      logger: pino({ level: 'silent' }),
    })
    const own = urlOf(ca, { user: 'ledger' })
    expect(await startOn(own)).toBe('started')
    await settings({ $userStreamAcl: { $r: 'ledger', $w: 'ledger' }, $systemStreamAcl: { $r: '$admins' } })
    expect(await startOn(own)).toMatch(
      /does not give the user the rights that the service needs \(7 PERMISSION_DENIED: .*\)\. .*"event-log prepare --user NAME"/,
    )
    await settings({ $userStreamAcl: { $r: 'ledger', $w: '$admins' }, $systemStreamAcl: { $r: 'ledger' } })
    expect(await startOn(own)).toMatch(
      /the rights that the service needs \(.*AccessDenied.*\)\. .*"event-log prepare/,
    )
  })

  test('that is unreachable, or has another address', async () => {
    const free = createServer()
    const port = await new Promise<number>((resolve) =>
      free.listen(0, '127.0.0.1', () => {
        const address = free.address()
        resolve(address === null || typeof address === 'string' ? 0 : address.port)
      }),
    )
    await new Promise((resolve) => free.close(resolve))
    expect(await startOn(`esdb://127.0.0.1:${port}?tls=false`)).toMatch(
      new RegExp(
        `cannot be reached \\(.*ECONNREFUSED 127\\.0\\.0\\.1:${port}.*\\)\\. Start it, or correct the connection string`,
      ),
    )
    expect(await startOn(`esdb://127.0.0.1:${port},127.0.0.1:1?tls=false`)).toMatch(
      /cannot be reached \(Failed to discover/,
    )
    expect(await startOn('esdb://no-such-host.invalid?tls=false')).toMatch(
      /cannot be reached \(.*(ENOTFOUND|EAI_AGAIN|Name resolution failed)/,
    )
  })

  test('that speaks TLS although the URL does not, or does not although the URL does', async () => {
    expect(await startOn(`esdb://127.0.0.1:${double.port}?tls=false`)).toMatch(
      /cannot be reached .*tls=false only for a server without TLS/,
    )
    expect(await startOn(`esdb://127.0.0.1:${plain.port}`)).toMatch(
      /cannot be reached .*tls=false only for a server without TLS/,
    )
  })

  test('that is to be discovered at several hosts, because the client would only ask the first', async () => {
    const several = 'esdb+discover://admin:secret@a.example:2113,b.example:2113?tls=true'
    expect(() => checkUrl(several)).toThrow('Remove +discover, as in esdb://user:password@a:2113,b:2113')
    expect(() => checkUrl(several)).not.toThrow(/secret|a\.example/)
    checkUrl('esdb+discover://admin:secret@all.example:2113?tls=true')
    checkUrl('esdb://admin:secret@a.example:2113,b.example:2113?tls=true')
  })

  test('and does not remember it: the first usable store is the first that the installation records', async () => {
    const own = await testDatabase()
    try {
      const start = async (eventLogUrl: string): Promise<void> => {
        const config = parseConfig({
          DATABASE_URL: own.url,
          SECRET_KEY: secretKey,
          EVENT_LOG_URL: eventLogUrl,
        })
        await (await openFoundation(config, { logger: pino({ level: 'silent' }) })).close()
      }
      await expect(start('esdb://127.0.0.1:1?tls=false')).rejects.toThrow('cannot be reached')
      await start(plain.url)
    } finally {
      await own.drop()
    }
  })
})

test('of several hosts, one whose name does not resolve is left out, and the last host is repeated; if none resolves, all stay', async () => {
  const resolved = 'esdb://user:p%40ss@localhost:2113,127.0.0.1:2114?tls=false'
  expect(await withResolvedHosts(resolved)).toBe(resolved)
  expect(await withResolvedHosts('esdb://user:p%40ss@gone.invalid:2113,127.0.0.1:2114/?tls=false')).toBe(
    'esdb://user:p%40ss@127.0.0.1:2114,127.0.0.1:2114/?tls=false',
  )
  expect(await withResolvedHosts('esdb://gone.invalid,[::1]:2113')).toBe('esdb://[::1]:2113,[::1]:2113')
  for (const url of ['esdb://gone.invalid:2113,lost.invalid:2113?tls=false', 'esdb://gone.invalid?tls=false'])
    expect(await withResolvedHosts(url)).toBe(url)
})
