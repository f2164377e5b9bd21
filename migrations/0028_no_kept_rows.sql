-- The rows that a rebuild replaced are dropped at its switch.
-- Not additive: a projector of the release before fails at its next batch and tries again until it is replaced; calls go on.

do $$
declare kept text;
begin
  for kept in
    select t.tablename from pg_tables t
     where t.schemaname = current_schema() and t.tablename ~ '_v[0-9]+_kept$'
  loop
    execute format('drop table %I', kept);
  end loop;
end $$;

drop table projection_kept;
