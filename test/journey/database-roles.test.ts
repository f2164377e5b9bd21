import { randomBytes } from 'node:crypto'
import { PgBoss } from 'pg-boss'
import { describe, expect, onTestFinished, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { migrate } from '../../src/foundation/migrate.ts'
import { prepareProjections } from '../../src/projector/tables.ts'
import { asking, expectAppendOnly } from '../support/append-only.ts'
import { emptyDatabase } from '../support/postgres.ts'
import { cli, cliJson, createPartner, eventually, lookup, startService } from '../support/service.ts'

/**
 * Migrations and the service use different database roles. The service's role is limited, so that a compromised service can do
 * little harm.
 */

const secretKey = 'a secret of the test, long enough to be one'

type Urls = { readonly superuser: string; readonly owner: string; readonly service: string }

/** An empty database whose owner is not a superuser, and a second role that has no privileges yet. */
const twoRoles = async (): Promise<Urls> => {
  const { url: superuser, drop } = await emptyDatabase()
  const name = randomBytes(4).toString('hex')
  const [owner, service] = [`owner_${name}`, `service_${name}`]
  const as = (role: string): string => {
    const url = new URL(superuser)
    url.username = role
    url.password = 'of-the-test'
    return url.href
  }
  await asking(superuser, async (client) => {
    await client.query(`create role ${owner} login password 'of-the-test'`)
    await client.query(`create role ${service} login password 'of-the-test'`)
    await client.query(`grant ${service} to ${owner}`)
    await client.query(`alter database ${new URL(superuser).pathname.slice(1)} owner to ${owner}`)
  })
  onTestFinished(async () => {
    const elsewhere = new URL(superuser)
    elsewhere.pathname = '/postgres'
    await drop()
    await asking(elsewhere.href, (client) => client.query(`drop role ${owner}, ${service}`))
  })
  return { superuser, owner: as(owner), service: as(service) }
}

const environmentOf = ({ owner, service }: Urls) => ({
  DATABASE_URL: service,
  DATABASE_MIGRATION_URL: owner,
  SECRET_KEY: secretKey,
  EMAIL_PROBE: 'off',
})

describe('a service with its own role', () => {
  test('answers, folds, rebuilds and runs jobs, and can only append to the event log', async () => {
    const urls = await twoRoles()
    const environment = environmentOf(urls)
    expect((await cli(['migrate'], environment)).code).toBe(0)
    // Running processes do not have the owner's password, as in production.
    const { DATABASE_MIGRATION_URL: _, ...running } = environment
    const service = await startService(running)
    onTestFinished(async () => void (await service.end('SIGTERM')))
    const partner = await createPartner('100', running)
    const call = async (path: string, body: object) => {
      const response = await fetch(`${service.apiUrl}${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'x-api-key': partner.apiKey,
          'idempotency-key': path.replaceAll('/', '-'),
        },
        body: JSON.stringify(body),
      })
      return response.status
    }
    await eventually(async () =>
      (await lookup(service.apiUrl, partner.apiKey, '8.8.8.8')).status === 200 ? true : undefined,
    )
    expect(await call('/v1/ip/lookup', { ip: '8.8.8.8' })).toBe(200)
    expect(
      await call('/v1/email/validate', { email: 'ada@example.invalid', include_company_data: true }),
    ).toBe(200)
    expect(await call('/pixel/limit', { domain: 'example.com', period: 'day', number: 5 })).toBe(200)
    expect(await call('/pixel/decide', { url: 'https://example.com/', hit_id: 'one' })).toBe(200)
    expect((await cli(['projection', 'rebuild', '--all'], running)).code).toBe(0)
    const verified = await cliJson<{ ok: boolean }[]>(['projection', 'verify', '--all'], running)
    expect(verified.every(({ ok }) => ok)).toBe(true)
    await asking(urls.service, async (client) => {
      expect((await client.query('select from pgboss.schedule')).rowCount).toBeGreaterThan(0)
      expect((await client.query('select from accounts')).rowCount).toBe(1)
    })
    // The owner removes deleted personal data from every table. The service's role could not.
    expect(await cliJson(['profiles', 'erase', 'somebody-1', '--yes'], environment)).toMatchObject({
      vacuumed: true,
    })
    const alone = await cli(['profiles', 'erase', 'somebody-2', '--yes', '--json'], running)
    expect([alone.code, JSON.parse(alone.out).vacuumed]).toEqual([1, false])
    await expectAppendOnly(urls.service)
    expect(service.output()).not.toMatch(/permission denied|must be owner/)
  })

  test('takes over the read models and jobs of an installation with one role, but no rights on the log', async () => {
    const urls = await twoRoles()
    await migrate({ url: urls.owner, serviceUrl: urls.owner })
    await asking(urls.owner, async (client) => {
      await prepareProjections(client, projections)
      await client.query(`insert into key_last_used_v1 (key_id, last_used_at) values ('old', now())`)
    })
    const boss = new PgBoss({ connectionString: urls.owner, max: 1 })
    await boss.start()
    await boss.createQueue('old')
    await boss.send('old', {})
    await boss.stop({ graceful: false })

    expect((await cli(['migrate'], environmentOf(urls))).err).toBe('')
    await asking(urls.service, async (client) => {
      const { rows } = await client.query(
        `select count(*) filter (where n.nspname = 'public')::int as left, count(*) filter (where r.rolname <> current_user)::int as strange
           from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_roles r on r.oid = c.relowner
          where c.relkind in ('r', 'v', 'p', 'S') and (n.nspname in ('projections', 'pgboss') or c.relname ~ '_v[0-9]+$')`,
      )
      expect(rows).toEqual([{ left: 0, strange: 0 }])
      expect((await client.query('select from key_last_used')).rowCount).toBe(1)
      expect((await client.query(`select from pgboss.job where name = 'old'`)).rowCount).toBe(1)
    })
    await expectAppendOnly(urls.service)
    // The jobs and rebuilds of the new role continue with the tables that were handed over to it.
    const service = await startService(environmentOf(urls))
    onTestFinished(async () => void (await service.end('SIGTERM')))
    expect((await cli(['projection', 'rebuild', '--all'], environmentOf(urls))).code).toBe(0)
  })

  test.each([
    [
      'in a database that was not migrated',
      ({ service }: Urls) => ({ DATABASE_URL: service }),
      /^DATABASE_URL: the database lacks \d+ migrations and "service_\w+" is not allowed to apply them\. Set DATABASE_MIGRATION_URL/,
    ],
    [
      'that could still change the log',
      ({ superuser, owner }: Urls) => ({ DATABASE_URL: superuser, DATABASE_MIGRATION_URL: owner }),
      /^DATABASE_URL: the role "postgres" could change the event log/,
    ],
    [
      'that does not exist and cannot be created',
      ({ service, owner }: Urls) => ({
        DATABASE_URL: service.replace('service_', 'nobody_'),
        DATABASE_MIGRATION_URL: owner,
      }),
      /^DATABASE_URL: there is no role "nobody_\w+", and "owner_\w+" is not allowed to create it\. Run as a superuser: create role/,
    ],
  ])('a role %s is refused in one line', async (_, urlsOf, reason) => {
    const { code, out, err } = await cli(['org', 'list'], {
      ...urlsOf(await twoRoles()),
      SECRET_KEY: secretKey,
    })
    expect({ code, out, lines: err.trimEnd().split('\n').length }).toEqual({ code: 2, out: '', lines: 1 })
    expect(err).toMatch(reason)
  })
})

test("a process that is started with only the owner's role takes nothing from the service next to it", async () => {
  const urls = await twoRoles()
  const both = { DATABASE_URL: urls.service, DATABASE_MIGRATION_URL: urls.owner, SECRET_KEY: secretKey }
  await cliJson(['org', 'create', 'Acme'], both)
  const alone = await cli(['org', 'list'], { DATABASE_URL: urls.owner, SECRET_KEY: secretKey })
  expect(alone).toMatchObject({ code: 2, err: expect.stringContaining('DATABASE_MIGRATION_URL') })
  expect(await cliJson(['org', 'list'], both)).toHaveLength(1)
})
