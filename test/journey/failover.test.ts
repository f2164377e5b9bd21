import pg from 'pg'
import { afterEach, expect, inject, test } from 'vitest'
import { projections } from '../../projections/index.ts'
// Declares the types of the values that the run provides.
import type {} from '../support/global-setup.ts'
import { restorePostgresLog, testDatabase } from '../support/postgres.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  exportLedger,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'

/**
 * The address of the database leads to an older copy of all its data, as after a failover to a standby with asynchronous replication. Processes
 * that have seen the lost events must not answer calls. A process that has not seen them can continue, and writes at the same positions.
 */

let closing: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const close of closing.reverse()) await close()
  closing = []
})

type Installation = {
  readonly environment: Record<string, string>
  /** Copies the database. Cuts all its connections for a moment. */
  copy(): Promise<void>
  /** Lets the address serve the copy. All connections are cut. */
  failOver(): Promise<void>
  head(): Promise<bigint>
  /** Restores only the event log, while all connections stay open. */
  restoreLog(position: bigint): Promise<void>
}

const openInstallation = async (): Promise<Installation> => {
  const database = await testDatabase()
  closing.push(database.drop)
  const direct = new URL(database.url)
  const name = direct.pathname.slice(1)
  const admin = new pg.Client({ connectionString: inject('postgresUrl') })
  await admin.connect()
  closing.push(() => admin.end())
  const network = await startTcpProxy({ host: direct.hostname, port: Number(direct.port) })
  closing.push(network.close)
  const through = new URL(direct)
  through.host = `127.0.0.1:${network.port}`
  const disconnect = (): Promise<unknown> =>
    eventually(async () => {
      await admin.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [name])
      const { rows } = await admin.query('select from pg_stat_activity where datname = $1', [name])
      return rows.length === 0 ? true : undefined
    })
  const whileCut = async (work: () => Promise<unknown>): Promise<void> => {
    network.refuse()
    try {
      await disconnect()
      await work()
    } finally {
      network.thaw()
    }
  }
  closing.push(() => admin.query(`drop database if exists ${name}_lost with (force)`))
  return {
    environment: {
      DATABASE_URL: through.href,
      KEY_DIR: database.keyDir,
      SECRET_KEY: 'a secret of the test, long enough to be one',
      METRICS_PORT: '0',
      LOG_LEVEL: 'info',
    },
    copy: () =>
      whileCut(async () => {
        await admin.query(`create database ${name}_copy template ${name} strategy file_copy`)
        await admin.query(`alter database ${name}_copy set search_path = projections, public`)
      }),
    head: async () => {
      const client = new pg.Client({ connectionString: database.url })
      await client.connect()
      const { rows } = await client.query<{ position: string }>('select position from log_head')
      await client.end()
      return BigInt(rows[0]?.position ?? 0)
    },
    restoreLog: (position) => restorePostgresLog(database.url, position),
    failOver: () =>
      whileCut(async () => {
        await admin.query(`alter database ${name} rename to ${name}_lost`)
        await admin.query(`alter database ${name}_copy rename to ${name}`)
      }),
  }
}

type Key = { readonly api_key: string; readonly api_key_id: string }

type Scene = Installation & {
  /** Starts a process that answers calls, and resolves when it accepts the keys. */
  startApi(): Promise<Service>
  readonly witness: Service
  readonly worker: Service
  readonly organizationId: string
  readonly apiKey: string
  readonly leaked: Key
}

const openScene = async (): Promise<Scene> => {
  const installation = await openInstallation()
  const { environment } = installation
  const start = async (roles: string): Promise<Service> => {
    const service = await startService({ ...environment, ROLES: roles })
    closing.push(() => {
      service.child.kill('SIGCONT')
      return service.end('SIGTERM')
    })
    return service
  }
  const witness = await start('api,dashboard')
  const worker = await start('projector,jobs')
  const { organizationId, apiKey } = await createPartner('60', environment)
  const leaked = await cliJson<Key>(['key', 'issue', organizationId], environment)
  const acceptsKeys = async (service: Service): Promise<Service> => {
    for (const key of [apiKey, leaked.api_key]) await answersAgain(service, key)
    return service
  }
  const startApi = async () => acceptsKeys(await start('api'))
  await acceptsKeys(witness)
  return { ...installation, startApi, witness, worker, organizationId, apiKey, leaked }
}

const caughtUp = (environment: Record<string, string>): Promise<true> =>
  eventually(async () => {
    const { code, out } = await cli(['projection', 'list', '--json'], environment)
    if (code !== 0) return undefined
    return (JSON.parse(out) as { behind: string }[]).every(({ behind }) => behind === '0') ? true : undefined
  })

/** After a start or a cut, the first calls can be refused. */
const answersAgain = ({ apiUrl }: Service, apiKey: string): Promise<true> =>
  eventually(async () => ((await lookup(apiUrl, apiKey, '8.8.8.8')).status === 200 ? true : undefined))

const refusesKey = ({ apiUrl }: Service, { api_key }: Key): Promise<true> =>
  eventually(async () => ((await lookup(apiUrl, api_key, '8.8.8.8')).status === 401 ? true : undefined))

const isReady = async ({ apiUrl }: Service): Promise<boolean> =>
  (await fetch(`${apiUrl}/readyz`)).status === 200

/** The read-only and the charged calls of a partner, also with the Idempotency-Key of a call whose events are lost. */
const statusesOf = async ({ apiUrl }: Service, apiKey: string, lostKey: string): Promise<number[]> => {
  const statuses: number[] = []
  const today = new Date().toISOString().slice(0, 10)
  for (const path of ['whoami', 'v1/balance', `v1/usage?from=${today}&to=${today}`])
    statuses.push((await fetch(`${apiUrl}/${path}`, { headers: { 'x-api-key': apiKey } })).status)
  for (let n = 0; n < 5; n++) statuses.push((await lookup(apiUrl, apiKey, `8.8.${n}.8`)).status)
  statuses.push((await lookup(apiUrl, apiKey, '8.8.4.4', { 'idempotency-key': lostKey })).status)
  return statuses
}

/** Calls, a grant and a revocation, which are all lost later. Resolves when the process has seen the last of them. */
const actBeforeLoss = async ({
  witness,
  environment,
  organizationId,
  apiKey,
  leaked,
}: Scene): Promise<void> => {
  expect((await lookup(witness.apiUrl, apiKey, '8.8.4.4', { 'idempotency-key': 'lost-call' })).status).toBe(
    200,
  )
  for (let n = 0; n < 10; n++) expect((await lookup(witness.apiUrl, apiKey, `9.9.${n}.9`)).status).toBe(200)
  await cliJson(['credits', 'grant', organizationId, '1000', '--reason', 'lost', '--yes'], environment)
  await cliJson(['key', 'revoke', leaked.api_key_id, '--reason', 'leaked', '--yes'], environment)
  await refusesKey(witness, leaked)
}

/** All processes are new, so everything works and every figure equals the log. */
const expectSound = async (
  { environment, organizationId, apiKey, leaked }: Scene,
  { charged }: { readonly charged: number },
): Promise<void> => {
  const service = await startService({ ...environment, ROLES: 'api,dashboard,projector,jobs' })
  closing.push(() => service.end('SIGTERM'))
  const { status, headers } = await lookup(service.apiUrl, apiKey, '8.8.8.8')
  expect(status).toBe(200)
  // The revocation was lost with the other events, so it must be repeated, as the guide says.
  await cliJson(['key', 'revoke', leaked.api_key_id, '--reason', 'leaked', '--yes'], environment)
  await refusesKey(service, leaked)
  await caughtUp(environment)
  expect(await cliJson(['ledger', 'verify'], environment)).toMatchObject({ ok: true, read_models: null })
  expect(await cliJson(['event-log', 'verify'], environment)).toMatchObject({ ok: true })
  expect(await cliJson(['projection', 'verify', '--all'], environment)).toEqual(
    projections.map(({ name }) => expect.objectContaining({ name, ok: true })),
  )
  const charges = chargesOf(await exportLedger(organizationId, environment))
  expect(charges).toBe(charged + 1)
  expect(Number(headers.get('credits-remaining'))).toBe(60 - charges)
}

const chargesOf = (events: readonly { readonly type: string }[]): number =>
  events.filter(({ type }) => type === 'CreditCharged').length

const answered = (statuses: readonly number[]): number => statuses.filter((status) => status === 200).length

/** The process refuses calls until it is restarted, and names the fault and the remedy. */
const expectRefusal = async (
  service: Service,
  { environment, apiKey }: Pick<Scene, 'environment' | 'apiKey'>,
): Promise<void> => {
  expect(answered(await statusesOf(service, apiKey, 'lost-call'))).toBe(0)
  await eventually(async () => ((await isReady(service)) ? undefined : true))
  const ready = await (await fetch(`${service.metricsUrl}/readyz`)).text()
  expect(ready).toMatch(/a standby took over without its last events: follow .* restart every process/)
  expect(service.output()).toContain('What do I do if the event log has been restored from an older copy?')
  const { out } = await cli(['doctor'], { ...environment, API_PORT: new URL(service.apiUrl).port })
  expect(out).toMatch(/^fault +service: \S+ is not ready: .*ledger failed/m)
}

test('processes that have seen lost events refuse calls, before and after another writes at the same positions', async () => {
  const scene = await openScene()
  const { environment, witness, worker, apiKey, organizationId, leaked } = scene
  const other = await scene.startApi()
  const late = await scene.startApi()
  await caughtUp(environment)
  // From here on, this process sees nothing.
  other.child.kill('SIGSTOP')
  await scene.copy()
  const chargedBefore = chargesOf(await exportLedger(organizationId, environment))
  for (const service of [witness, late]) await answersAgain(service, apiKey)
  await actBeforeLoss(scene)
  await refusesKey(late, leaked)
  // This process sees the log again only after another process has written at the lost positions.
  late.child.kill('SIGSTOP')
  await scene.failOver()

  await expectRefusal(witness, scene)
  other.child.kill('SIGCONT')
  await answersAgain(other, apiKey)
  for (let n = 0; n < 20; n++) expect((await lookup(other.apiUrl, apiKey, `9.9.${n}.9`)).status).toBe(200)
  // The call with this key was lost, so it is a new call, which is charged.
  const repeated = await lookup(other.apiUrl, apiKey, '8.8.4.4', { 'idempotency-key': 'lost-call' })
  expect([repeated.status, repeated.headers.get('idempotent-replayed')]).toEqual([200, null])
  const charged = chargesOf(await exportLedger(organizationId, environment))
  expect(charged).toBe(chargedBefore + 22)
  // The log is now longer than before the failover.
  late.child.kill('SIGCONT')
  await expectRefusal(late, scene)
  expect(answered(await statusesOf(witness, apiKey, 'lost-call'))).toBe(0)
  expect(await isReady(other)).toBe(true)
  expect((await fetch(`${worker.metricsUrl}/readyz`)).status).toBe(503)
  for (const one of [witness, late, other, worker]) expect(await one.end('SIGTERM')).toBe(0)
  await expectSound(scene, { charged })
}, 300_000)

test('the same if the connections survive, as behind a pooler, and the projections do too', async () => {
  const scene = await openScene()
  const { environment, witness, worker } = scene
  await caughtUp(environment)
  const copied = await scene.head()
  await actBeforeLoss(scene)
  await caughtUp(environment)
  await scene.restoreLog(copied)
  await expectRefusal(witness, scene)
  for (const one of [witness, worker]) expect(await one.end('SIGTERM')).toBe(0)
  await expect(startService({ ...environment, ROLES: 'api' })).rejects.toThrow(
    /ended with 2 [\s\S]*restored from an older copy/,
  )
  const granted = await cli(['credits', 'grant', scene.organizationId, '5'], environment)
  expect(granted).toMatchObject({ code: 2, err: expect.stringContaining('projection rebuild --all') })
}, 300_000)
