/**
 * The rights of the database roles. The role that runs migrations owns the schema. The service's role reads and writes the tables, owns the
 * schemas of read models and jobs, and can only append to the event log. If one role does both, nothing is separated.
 *
 * The rights are granted again by every migration, because they are lost when a dump is restored or a role is recreated. If they are already
 * granted, this takes only a few queries.
 */
import pg from 'pg'

/** The schemas that the service's role owns, because the service creates and drops their tables at run time. */
const serviceSchemas = ['projections', 'pgboss'] as const
/** The tables and views that the service's role can only read. The function `append_events` writes the event log with the rights of its owner. */
const readOnly = [
  'log_mark',
  'log_stream_marks',
  'log_segments',
  'log_head',
  'log_streams',
  'schema_migrations',
]

const appends = [
  'append_events(text[], bigint[], integer[], integer[], integer[], bytea, bytea, bigint, bytea)',
  'append_batch(text[], bigint[], integer[], integer[], integer[], bytea, bytea)',
]

/** A role lacks rights that it needs, or has too many. `message` contains the role and the remedy. */
export class RoleUnfit extends Error {
  override name = 'RoleUnfit'
}

/** Returns the role in a connection URL. If the URL contains none, returns the default of `pg`, which can be an environment variable. */
const roleOf = (url: string): { name: string; password: string } => {
  const { user, password } = new pg.Client({ connectionString: url })
  return { name: user ?? '', password: typeof password === 'string' ? password : '' }
}

type Roles = { readonly owner: string; readonly service: string; readonly schema: string }

/** Grants the rights in one transaction. `client` must be connected as the schema's owner and hold the migration lock. */
export const arrangeRoles = async (client: pg.Client, serviceUrl: string): Promise<void> => {
  const { name: service, password } = roleOf(serviceUrl)
  await client.query('begin')
  try {
    const { rows } = await client.query<{ owner: string; schema: string }>(
      `select current_user as owner, nspname as schema from pg_class c join pg_namespace n on n.oid = relnamespace
        where c.oid = 'schema_migrations'::regclass`,
    )
    const roles: Roles = { owner: rows[0]?.owner ?? '', service, schema: rows[0]?.schema ?? '' }
    if (roles.owner !== service) await makeRole(client, roles, password)
    else await refuseToTakeOver(client, service)
    await handOver(client, roles)
    if (roles.owner !== service) await grantRest(client, roles)
    await setPaths(client, roles)
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    if (!(error instanceof pg.DatabaseError) || error.code !== insufficientPrivilege) throw error
    throw new RoleUnfit(
      `"${client.user}" is not allowed to change the rights of the service's role: ${error.message}. Make it the owner of the database: alter database ${client.database} owner to ${client.user}`,
      { cause: error },
    )
  }
}

const insufficientPrivilege = '42501'

/** Refuses a process with only the owner's URL. It would take over the service's schemas, and so break the running service. */
const refuseToTakeOver = async (client: pg.Client, owner: string): Promise<void> => {
  const { rows } = await client.query<{ service: string }>(
    `select pg_get_userbyid(nspowner) as service from pg_namespace where nspname = 'projections' and nspowner <> $1::regrole`,
    [client.escapeIdentifier(owner)],
  )
  const service = rows[0]?.service
  if (service !== undefined)
    throw new RoleUnfit(
      `"${owner}" owns this database, but the service uses it as "${service}". Use ${service} in DATABASE_URL and ${owner} in DATABASE_MIGRATION_URL. For the embedded PostgreSQL, set DATA_DIR and neither of these`,
    )
}

const says = async (client: pg.Client, condition: string, values: unknown[] = []): Promise<boolean> => {
  const { rows } = await client.query<{ yes: boolean }>(`select (${condition}) as yes`, values)
  return rows[0]?.yes === true
}

/** Creates the role if it is missing. Refuses a role that could change the event log. */
const makeRole = async (client: pg.Client, { owner, service }: Roles, password: string): Promise<void> => {
  if (!(await says(client, 'exists (select from pg_roles where rolname = $1)', [service]))) {
    if (!(await says(client, 'select rolsuper or rolcreaterole from pg_roles where rolname = current_user')))
      throw new RoleUnfit(
        `there is no role "${service}", and "${owner}" is not allowed to create it. Run as a superuser: create role ${service} login password '…'; grant ${service} to ${owner}`,
      )
    await client.query(
      `create role ${client.escapeIdentifier(service)} login nosuperuser nocreatedb nocreaterole noreplication password ${client.escapeLiteral(password)}`,
    )
  }
  const owns = `pg_has_role($1, current_user, 'member') or pg_has_role($1, (select relowner from pg_class where oid = 'log_segments'::regclass), 'member')`
  if (await says(client, owns, [service]))
    throw new RoleUnfit(
      `the role "${service}" could change the event log: it is a superuser, owns the log, or is a member of the role that owns it. Use a separate role, which is created if it does not exist`,
    )
  if (await says(client, `pg_has_role(current_user, $1, 'set')`, [service])) return
  await client.query(`grant ${client.escapeIdentifier(service)} to current_user`).catch((cause: unknown) => {
    throw new RoleUnfit(
      `"${owner}" cannot make "${service}" the owner of the schemas ${serviceSchemas.join(' and ')}. Run as a superuser: grant ${service} to ${owner}`,
      { cause },
    )
  })
}

/** Selects the objects in the service's schemas that it does not own yet. Indexes and owned sequences get a new owner with their table. */
const strangers = `
  select format('%s %s', case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence' else 'table' end, c.oid::regclass) as object
    from pg_class c
   where c.relnamespace in (select oid from pg_namespace where nspname = any ($1)) and c.relkind in ('r', 'p', 'v', 'm', 'S') and c.relowner <> $2::regrole
     and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i') and c.relkind = 'S')
  union all
  select format('routine %s', p.oid::regprocedure) from pg_proc p
   where p.pronamespace in (select oid from pg_namespace where nspname = any ($1)) and p.proowner <> $2::regrole
  union all
  select format('type %s', t.oid::regtype) from pg_type t
   where t.typnamespace in (select oid from pg_namespace where nspname = any ($1)) and t.typowner <> $2::regrole and t.typtype in ('e', 'd')`

const handOver = async (client: pg.Client, { service }: Roles): Promise<void> => {
  const to = client.escapeIdentifier(service)
  for (const schema of serviceSchemas)
    if (
      !(await says(client, 'select nspowner = $2::regrole from pg_namespace where nspname = $1', [
        schema,
        to,
      ]))
    )
      await client.query(`alter schema ${schema} owner to ${to}`)
  const { rows } = await client.query<{ object: string }>(strangers, [serviceSchemas, to])
  for (const { object } of rows) await client.query(`alter ${object} owner to ${to}`)
}

/** Grants rights on the tables and views of the schema's owner, including those of later migrations. */
const grantRest = async (client: pg.Client, { service, schema }: Roles): Promise<void> => {
  const to = client.escapeIdentifier(service)
  const within = client.escapeIdentifier(schema)
  if (await says(client, `has_schema_privilege('public', $1, 'create')`, [schema]))
    await client.query(`revoke create on schema ${within} from public`)
  if (!(await says(client, `has_schema_privilege($1, $2, 'usage')`, [service, schema])))
    await client.query(`grant usage on schema ${within} to ${to}`)
  const { rows } = await client.query<{
    table: string
    name: string
    reads: boolean
    writes: boolean
    changes: boolean
  }>(
    `select c.oid::regclass::text as table, c.relname as name, has_table_privilege($1, c.oid, 'select') as reads,
            has_table_privilege($1, c.oid, 'insert') and has_table_privilege($1, c.oid, 'update')
              and has_table_privilege($1, c.oid, 'delete') as writes,
            has_table_privilege($1, c.oid, 'insert, update, delete, truncate') as changes
       from pg_class c where c.relnamespace = $2::regnamespace and c.relkind in ('r', 'p', 'v')
        and c.relowner = (select relowner from pg_class where oid = 'schema_migrations'::regclass)`,
    [service, within],
  )
  for (const { table, name, reads, writes, changes } of rows)
    if (readOnly.includes(name)) {
      if (changes) await client.query(`revoke insert, update, delete, truncate on ${table} from ${to}`)
      if (!reads) await client.query(`grant select on ${table} to ${to}`)
    } else if (!reads || !writes)
      await client.query(`grant select, insert, update, delete on ${table} to ${to}`)
  for (const append of appends)
    if (!(await says(client, `has_function_privilege($1, '${append}', 'execute')`, [service])))
      await client.query(`grant execute on function ${append} to ${to}`)
}

/**
 * Stores the search paths in the database, so that statements can omit the schema, even in psql. The service creates its tables in
 * `projections`. The owner's path begins with the owner's schema, so that no table of the service can hide one of the owner's tables.
 */
const setPaths = async (client: pg.Client, { owner, service, schema }: Roles): Promise<void> => {
  const { rows } = await client.query<{ database: string; mine: boolean }>(
    `select datname as database, pg_has_role(current_user, datdba, 'usage') as mine from pg_database where datname = current_database()`,
  )
  const database = client.escapeIdentifier(rows[0]?.database ?? '')
  const within = client.escapeIdentifier(schema)
  const ofService = `projections, ${within}`
  const set = async (whose: string, role: string | null, path: string | null): Promise<void> => {
    const known = await client.query<{ path: string }>(
      `select substr(setting, 13) as path from pg_db_role_setting, unnest(setconfig) as setting
        where setdatabase = (select oid from pg_database where datname = current_database())
          and setrole = coalesce($1::regrole::oid, 0) and setting like 'search\\_path=%'`,
      [role],
    )
    if ((known.rows[0]?.path ?? null) === path) return
    await client.query(
      path === null ? `alter ${whose} reset search_path` : `alter ${whose} set search_path = ${path}`,
    )
  }
  const roleIn = (role: string): string => `role ${client.escapeIdentifier(role)} in database ${database}`
  if (rows[0]?.mine === true) await set(`database ${database}`, null, ofService)
  else if (service === owner) return await set(roleIn(owner), client.escapeIdentifier(owner), ofService)
  else await set(roleIn(service), client.escapeIdentifier(service), ofService)
  await set(
    roleIn(owner),
    client.escapeIdentifier(owner),
    service === owner ? null : `${within}, projections`,
  )
}
