-- Who may do what. The role that migrates owns this schema and the event log; the service's own role, where there is one,
-- owns the two schemas below, whose tables come and go while it runs, and is granted the rest by the code that applies
-- these files (src/ops/database-roles.ts). Both are found without naming their schema: search_path is set there too.

create schema if not exists projections;
create schema if not exists pgboss;

-- Read models that were made before they had a schema of their own.
do $$
declare
  v_name text;
  v_view boolean;
begin
  for v_name, v_view in
    select c.relname, c.relkind = 'v' from pg_class c
     where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'v')
       and c.relname ~ ('^(accounts|account_lots|account_price_overrides|api_keys|key_usage|key_last_used|ledger_lines'
                        || '|profile_cache|profile_aliases)' || case when c.relkind = 'r' then '_v[0-9]+(_next)?$' else '$' end)
  loop
    execute format('alter %s %I set schema projections', case when v_view then 'view' else 'table' end, v_name);
  end loop;
end
$$;

-- The one way to write the event log: it appends, by the rights of its owner, and nothing else is granted to anybody. Its
-- search_path is fixed so that whoever calls it cannot put tables of their own in the place of these. A later file that
-- replaces the function has to say all of this again.
alter function append_batch(text[], bigint[], integer[], integer[], integer[], text, text, text, text) security definer;
revoke execute on function append_batch(text[], bigint[], integer[], integer[], integer[], text, text, text, text) from public;
do $$
begin
  execute format(
    'alter function append_batch(text[], bigint[], integer[], integer[], integer[], text, text, text, text)
       set search_path = pg_catalog, %I, pg_temp', current_schema());
end
$$;
